package db_test

import (
	"io"
	"regexp"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// call is one way to reach an agent by its name or a checkpoint by its id.
type call struct {
	name string
	do   func(s *db.Store, sc ckpt.Scope, agent, id string) error
}

func calls(t *testing.T) []call {
	ctx := t.Context()
	pinned := true
	of := func(agent string) ckpt.RunRef { return ckpt.RunRef{Agent: agent} }
	return []call{
		{"Checkpoint", func(s *db.Store, sc ckpt.Scope, _, id string) error {
			_, err := s.Checkpoint(ctx, sc, id, true)
			return err
		}},
		{"Checkpoints", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Checkpoints(ctx, sc, ckpt.CheckpointFilter{Agent: agent})
			return err
		}},
		{"Latest", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Latest(ctx, sc, ckpt.CheckpointFilter{Agent: agent}, true)
			return err
		}},
		{"Restore by id", func(s *db.Store, sc ckpt.Scope, agent, id string) error {
			_, _, err := s.Restore(ctx, sc, ckpt.RestoreRequest{Agent: agent, Checkpoint: id})
			return err
		}},
		{"Restore an id into one's own", func(s *db.Store, sc ckpt.Scope, _, id string) error {
			_, _, err := s.Restore(ctx, sc, ckpt.RestoreRequest{Agent: "own", Checkpoint: id})
			return err
		}},
		{"Restore newest", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, _, err := s.Restore(ctx, sc, ckpt.RestoreRequest{Agent: agent})
			return err
		}},
		{"Save with its parent", func(s *db.Store, sc ckpt.Scope, _, id string) error {
			r := request("own", ckpt.KindRoutine, `1`)
			r.Parent = ckpt.Ref(id)
			_, err := s.Save(ctx, sc, r)
			return err
		}},
		{"Patch", func(s *db.Store, sc ckpt.Scope, _, id string) error {
			_, err := s.Patch(ctx, sc, id, ckpt.CheckpointPatch{Pinned: &pinned})
			return err
		}},
		{"Delete", func(s *db.Store, sc ckpt.Scope, _, id string) error { _, err := s.Delete(ctx, sc, id); return err }},
		{"Policy", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Policy(ctx, sc, agent)
			return err
		}},
		{"Prune", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, _, err := s.Prune(ctx, sc, ckpt.PruneRequest{Agent: agent}, "")
			return err
		}},
		{"Erase", func(s *db.Store, sc ckpt.Scope, agent, _ string) error { _, err := s.Erase(ctx, sc, agent); return err }},
		{"Export", func(s *db.Store, sc ckpt.Scope, agent, _ string) error { return s.Export(ctx, sc, agent, io.Discard) }},
		{"Run", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Run(ctx, sc, of(agent))
			return err
		}},
		{"Beat", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Beat(ctx, sc, of(agent), ckpt.Heartbeat{})
			return err
		}},
		{"EndRun", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, _, err := s.EndRun(ctx, sc, of(agent), ckpt.EndRequest{Status: ckpt.RunCompleted})
			return err
		}},
		{"Steps", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Steps(ctx, sc, of(agent), ckpt.ListFilter{})
			return err
		}},
		{"FinishStep", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, _, err := s.FinishStep(ctx, sc, of(agent), ckpt.StepRequest{Key: "k", Status: ckpt.StepSucceeded})
			return err
		}},
		{"Operations", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Operations(ctx, sc, of(agent), ckpt.ListFilter{})
			return err
		}},
		{"EndOperation", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, _, err := s.EndOperation(ctx, sc, of(agent), ckpt.OperationEnd{Key: "k", Status: ckpt.OperationSucceeded})
			return err
		}},
		{"Events", func(s *db.Store, sc ckpt.Scope, agent, _ string) error {
			_, err := s.Events(ctx, sc, of(agent), 0, 0)
			return err
		}},
	}
}

var anID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// TestOthersAreAsGoodAsMissing: every attempt of a user on another owner's
// agent or checkpoint gets the same answer, word for word, as for a missing
// one, and changes nothing.
func TestOthersAreAsGoodAsMissing(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	secret := save(t, s, ann, "secret", ckpt.KindRoutine, `"ann's"`)
	save(t, s, bob, "own", ckpt.KindRoutine, `"bob's"`)
	for _, c := range calls(t) {
		theirs, missing := c.do(s, bob, "secret", secret.ID), c.do(s, bob, "nobody", newID(t))
		wantCode(t, theirs, ckpt.CodeNotFound)
		same := func(err error) string {
			text := anID.ReplaceAllString(err.Error(), "ID")
			return regexp.MustCompile(`\b(secret|nobody)\b`).ReplaceAllString(text, "NAME")
		}
		if same(theirs) != same(missing) {
			t.Errorf("%s: another's is %q, a missing one %q", c.name, theirs, missing)
		}
	}
	got, err := s.Checkpoint(t.Context(), ann, secret.ID, true)
	must(t, err)
	if string(got.State) != `"ann's"` || got.Pinned {
		t.Errorf("ann's checkpoint is %+v", got)
	}
	for owner, sc := range map[string]ckpt.Scope{"ann": ann, "bob": bob} {
		agents, err := s.Agents(t.Context(), sc, ckpt.AgentFilter{})
		must(t, err)
		if len(agents.Agents) != 1 || agents.Agents[0].Owner != sc.Owner {
			t.Errorf("%s sees the agents %+v", owner, agents.Agents)
		}
		st, err := s.Status(t.Context(), sc)
		must(t, err)
		if st.Agents != 1 || st.Counts[ckpt.KindRoutine] != 1 {
			t.Errorf("%s counts %d agents", owner, st.Agents)
		}
	}
}

// TestSameNamesAreTwoAgents: the same name under two owners is two agents.
func TestSameNamesAreTwoAgents(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	a, b := save(t, s, ann, "x", ckpt.KindRoutine, `"a"`), save(t, s, bob, "x", ckpt.KindRoutine, `"b"`)
	if a.Seq != 1 || b.Seq != 1 || b.Parent != "" {
		t.Errorf("%+v %+v", a, b)
	}
	_, err := s.Erase(t.Context(), ann, "x")
	must(t, err)
	if got := seqs(t, s, bob, "x"); len(got) != 1 {
		t.Errorf("bob has %v", got)
	}
}

// TestAdministrator: an administrator reaches other owners' data by naming the
// owner, or by an id. A request without an owner is about the administrator's
// own data.
func TestAdministrator(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	c := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	save(t, s, bob, "a", ckpt.KindRoutine, `2`)
	if _, err := ann.Caller.For(bob.Owner); ckpt.CodeOf(err) != ckpt.CodeDenied {
		t.Errorf("ann may name bob: %v", err)
	}
	target, err := root.Caller.For(ann.Owner)
	must(t, err)
	wrong, err := root.Caller.For(bob.Owner)
	must(t, err)
	if got, err := s.Checkpoint(t.Context(), root, c.ID, true); err != nil || got.Owner != ann.Owner {
		t.Errorf("by id: %v", err)
	}
	if _, err := s.Checkpoint(t.Context(), target, c.ID, true); err != nil {
		t.Errorf("by id and owner: %v", err)
	}
	_, err = s.Checkpoint(t.Context(), wrong, c.ID, true)
	wantCode(t, err, ckpt.CodeNotFound)
	_, err = s.Checkpoints(t.Context(), root, ckpt.CheckpointFilter{Agent: "a"})
	wantCode(t, err, ckpt.CodeNotFound)
	if !strings.Contains(err.Error(), ann.Owner+" and "+bob.Owner) {
		t.Errorf("an administrator is not told whose there is: %v", err)
	}
	cleo := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:cleo"}}
	if _, err = s.Checkpoints(t.Context(), cleo, ckpt.CheckpointFilter{Agent: "a"}); err == nil || strings.Contains(err.Error(), "uid:") {
		t.Errorf("somebody is told of others: %v", err)
	}
	page, err := s.Checkpoints(t.Context(), target, ckpt.CheckpointFilter{Agent: "a"})
	must(t, err)
	if len(page.Checkpoints) != 1 || page.Checkpoints[0].ID != c.ID {
		t.Errorf("ann's list is %+v", page)
	}
	by, err := s.Save(t.Context(), target, request("a", ckpt.KindRecovery, `3`))
	must(t, err)
	if by.Owner != ann.Owner || by.Seq != 2 {
		t.Errorf("a save for ann is %+v", by)
	}
}

// TestEverybody: '*' lists and prunes the data of all owners, and is not a
// valid owner for writes.
func TestEverybody(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	save(t, s, bob, "b", ckpt.KindRoutine, `2`)
	all, err := root.Caller.For(ckpt.AllOwners)
	must(t, err)
	for _, sc := range []ckpt.Scope{root, all} {
		agents, err := s.Agents(t.Context(), sc, ckpt.AgentFilter{})
		must(t, err)
		st, err := s.Status(t.Context(), sc)
		must(t, err)
		if len(agents.Agents) != 2 || st.Agents != 2 {
			t.Errorf("%+v: %d agents, status %d", sc, len(agents.Agents), st.Agents)
		}
	}
	if _, _, err := s.Prune(t.Context(), all, ckpt.PruneRequest{}, "k"); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"save":   func() error { _, err := s.Save(t.Context(), all, request("a", ckpt.KindRoutine, `1`)); return err }(),
		"policy": func() error { _, err := s.SetPolicy(t.Context(), all, "a", ckpt.DefaultPolicy()); return err }(),
	} {
		if code := ckpt.CodeOf(err); code != ckpt.CodeInvalid {
			t.Errorf("%s for everybody: %v", name, err)
		}
	}
	if agents, _ := s.Agents(t.Context(), root, ckpt.AgentFilter{}); len(agents.Agents) != 2 {
		t.Errorf("an agent of everybody was made: %+v", agents.Agents)
	}
}
