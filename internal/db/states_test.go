package db_test

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestAgentsAddUpTheirStates: the list of agents has the total size of the
// states, besides the stored size.
func TestAgentsAddUpTheirStates(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	want := int64(0)
	for i := range 3 {
		state := fmt.Sprintf(`{"i":%d,"text":"%s"}`, i, strings.Repeat("the same again ", 2000))
		want += int64(len(state))
		save(t, s, ann, "a", ckpt.KindRecovery, state)
	}
	save(t, s, ann, "b", ckpt.KindRoutine, `1`)
	page, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{States: true})
	must(t, err)
	if a := page.Agents[0]; len(page.Agents) != 2 || a.StateBytes == nil || *a.StateBytes != want || a.StoredBytes >= want/2 || *page.Agents[1].StateBytes != 1 {
		t.Errorf("the states have %d bytes: %+v", want, page.Agents)
	}
	if page, err = s.Agents(t.Context(), ann, ckpt.AgentFilter{}); err != nil || page.Agents[0].StateBytes != nil {
		t.Errorf("nobody asked for the states: %+v %v", page.Agents[0], err)
	}
}
