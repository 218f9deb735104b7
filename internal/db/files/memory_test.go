package files

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// TestMemoryIsBounded: what is kept in memory about agents stays within its bounds, and is removed with the agent
// and after some time.
func TestMemoryIsBounded(t *testing.T) {
	s := New(nil)
	now := time.Now()
	for agent := range int64(100) {
		s.known.put(&knownTree{row: TreeRow{ID: agent, AgentID: agent, Sum: "x"}, entries: make([]ckpt.TreeEntry, 4000), used: now})
		sum := 0
		for _, k := range s.known.of {
			sum += k.size()
		}
		if sum != s.known.entries || sum > mostKnown {
			t.Fatalf("%d entries are known, and %d are counted", sum, s.known.entries)
		}
	}
	if s.known.get(&TreeRow{ID: 99, AgentID: 99, Sum: "x"}, 0, now) == nil {
		t.Error("the newest tree is not known")
	}
	s.known.put(&knownTree{row: TreeRow{ID: 1, AgentID: 99, Sum: "y"}, entries: make([]ckpt.TreeEntry, mostKnown), used: now})
	if s.known.get(&TreeRow{ID: 99, AgentID: 99, Sum: "x"}, 0, now) != nil {
		t.Error("a tree is known that has another one after it")
	}

	random := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, 20_000)
	var last []uint64
	for i := range mostAlike + 100 {
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		last = features(data)
		s.alike.add(alikeName("ann", fmt.Sprint(i%3)), fmt.Sprint(i), last, now)
	}
	if s.alike.count > mostAlike {
		t.Errorf("%d contents are known", s.alike.count)
	}
	i := mostAlike + 99
	name := fmt.Sprint(i % 3)
	if got := s.alike.find(alikeName("ann", name), last, now); got != fmt.Sprint(i) {
		t.Errorf("the newest content is not found: %q", got)
	}
	if got := s.alike.find(alikeName("bob", name), last, now); got != "" {
		t.Errorf("a content of another owner is found: %q", got)
	}
	s.ForgetAgent(&ledger.AgentRow{ID: 98, Owner: "ann", Name: name})
	if got := s.alike.find(alikeName("ann", name), last, now); got != "" || s.known.of[98] != nil {
		t.Errorf("an erased agent is known: %q", got)
	}
	s.known.forgetIdle(now.Add(time.Hour))
	s.alike.forgetIdle(now.Add(time.Hour))
	if len(s.known.of)+s.known.entries+len(s.alike.of)+s.alike.count > 0 {
		t.Errorf("%d entries and %d contents are known after an hour", s.known.entries, s.alike.count)
	}
}
