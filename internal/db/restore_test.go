package db_test

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// inRun returns a save into a run.
func inRun(run string, kind ckpt.Kind, state string) *ckpt.SaveRequest {
	r := request("a", kind, state)
	r.Run = run
	return r
}

// TestRestoreChooses restores what was requested: by id, by kind, the newest of
// a run, the main run before others, and the newest clean one.
func TestRestoreChooses(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ids := map[string]string{}
	for _, c := range []struct {
		name, run string
		kind      ckpt.Kind
	}{
		{"main recovery", "", ckpt.KindRecovery}, {"main routine", "main", ckpt.KindRoutine}, {"main suspect", "", ckpt.KindRoutine},
		{"side", "side", ckpt.KindRoutine}, {"side operation", "side", ckpt.KindPreOperation},
	} {
		saved, err := s.Save(t.Context(), ann, inRun(c.run, c.kind, `"`+c.name+`"`))
		must(t, err)
		ids[c.name] = saved.ID
	}
	must(t, s.ExecForTest(`UPDATE checkpoints SET suspect = 1 WHERE id = ?`, ids["main suspect"]))
	for want, r := range map[string]ckpt.RestoreRequest{
		"main suspect":   {},
		"main routine":   {Clean: true},
		"main recovery":  {Kind: ckpt.KindRecovery},
		"side operation": {Kind: ckpt.KindPreOperation}, // main has none
		"side":           {Run: "side", Kind: ckpt.KindRoutine},
	} {
		r.Agent = "a"
		c, _, err := s.Restore(t.Context(), ann, r)
		must(t, err)
		if string(c.State) != `"`+want+`"` || c.ID != ids[want] {
			t.Errorf("%+v gives %s, want %s", r, c.State, want)
		}
	}
	for name, id := range ids {
		if c, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: id}); err != nil || string(c.State) != `"`+name+`"` {
			t.Errorf("%s by id: %v", name, err)
		}
	}
}

// TestRestoreMovesTheHead: the restored checkpoint is the parent of the next
// save, and no history is lost.
func TestRestoreMovesTheHead(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	first := save(t, s, ann, "a", ckpt.KindRecovery, `1`)
	second := save(t, s, ann, "a", ckpt.KindRecovery, `2`)
	_, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: first.ID})
	must(t, err)
	third := save(t, s, ann, "a", ckpt.KindRecovery, `3`)
	if string(second.Parent) != first.ID || string(third.Parent) != first.ID || third.Seq != 3 {
		t.Errorf("second comes from %s, third from %s", second.Parent, third.Parent)
	}
	if got := seqs(t, s, ann, "a"); len(got) != 3 {
		t.Errorf("there is %v", got)
	}
	r := request("a", ckpt.KindRecovery, `4`)
	r.Parent = ckpt.Ref(second.ID)
	if c, err := s.Save(t.Context(), ann, r); err != nil || string(c.Parent) != second.ID {
		t.Errorf("a named parent: %v", err)
	}
}

// TestRestoreRefusals: if a checkpoint does not belong to what was requested,
// the error names both.
func TestRestoreRefusals(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	c := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	save(t, s, ann, "b", ckpt.KindRoutine, `1`)
	for name, k := range map[string]struct {
		request ckpt.RestoreRequest
		code    ckpt.Code
		says    []string
	}{
		"wrong agent":    {ckpt.RestoreRequest{Agent: "b", Checkpoint: c.ID}, ckpt.CodeConflict, []string{"agent a", "not to b", c.ID}},
		"wrong run":      {ckpt.RestoreRequest{Agent: "a", Run: "other", Checkpoint: c.ID}, ckpt.CodeConflict, []string{"run main", "not to other", c.ID}},
		"missing":        {ckpt.RestoreRequest{Agent: "a", Checkpoint: newID(t)}, ckpt.CodeNotFound, nil},
		"no agent":       {ckpt.RestoreRequest{Agent: "none"}, ckpt.CodeNotFound, []string{"none"}},
		"no such kind":   {ckpt.RestoreRequest{Agent: "a", Kind: ckpt.KindRecovery}, ckpt.CodeNotFound, []string{"ckptsidecar list a"}},
		"no such run":    {ckpt.RestoreRequest{Agent: "a", Run: "none"}, ckpt.CodeNotFound, nil},
		"id and kind":    {ckpt.RestoreRequest{Agent: "a", Checkpoint: c.ID, Kind: ckpt.KindRoutine}, ckpt.CodeInvalid, nil},
		"id and clean":   {ckpt.RestoreRequest{Agent: "a", Checkpoint: c.ID, Clean: true}, ckpt.CodeInvalid, nil},
		"bad id":         {ckpt.RestoreRequest{Agent: "a", Checkpoint: "x"}, ckpt.CodeInvalid, nil},
		"bad agent":      {ckpt.RestoreRequest{Agent: "/"}, ckpt.CodeInvalid, nil},
		"bad kind":       {ckpt.RestoreRequest{Agent: "a", Kind: "x"}, ckpt.CodeInvalid, nil},
		"control reason": {ckpt.RestoreRequest{Agent: "a", Reason: "a\nb"}, ckpt.CodeInvalid, nil},
	} {
		_, _, err := s.Restore(t.Context(), ann, k.request)
		if ckpt.CodeOf(err) != k.code {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range k.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", name, err, text)
			}
		}
	}
}
