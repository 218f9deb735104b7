package db_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

func toBob(agent string) ckpt.ChownRequest {
	return ckpt.ChownRequest{From: ann.Owner, To: bob.Owner, Agent: agent, Reason: "moved"}
}

func chown(t *testing.T, s *db.Store, r ckpt.ChownRequest) *ckpt.Chowned {
	t.Helper()
	done, _, err := s.Chown(t.Context(), root, r, "")
	must(t, err)
	return done
}

// TestChown gives agents to another owner: everything that they have belongs to
// the new owner, and nothing of it to the old one.
func TestChown(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	ctx := t.Context()
	start(t, s, 7)
	first := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	save(t, s, ann, "b", ckpt.KindRoutine, `{"n":2}`)
	_, _, err := s.Append(ctx, ann, mainRun, []ckpt.NewEvent{{Type: "said", Payload: ckpt.JSON(`{"text":"hello"}`)}}, "")
	must(t, err)
	_, _, err = s.Chown(ctx, ann, toBob(""), "")
	wantCode(t, err, ckpt.CodeDenied)
	_, _, err = s.Chown(ctx, root, toBob(""), "")
	wantCode(t, err, ckpt.CodeConflict) // because the run's owner is alive
	p.kill(7)
	dry := toBob("")
	dry.DryRun = true
	expect.Equal(t, "agents that would move", len(chown(t, s, dry).Agents), 2)
	_, err = s.Latest(ctx, ann, ckpt.CheckpointFilter{Agent: "a"}, true)
	must(t, err)

	done, replayed, err := s.Chown(ctx, root, toBob(""), "k")
	must(t, err)
	if replayed || len(done.Agents) != 2 || done.Agents[0].Agent != "a" || done.Agents[0].Checkpoints != 1 {
		t.Errorf("%+v, replayed %v", done, replayed)
	}
	again, replayed, err := s.Chown(ctx, root, toBob(""), "k")
	must(t, err)
	if !replayed || len(again.Agents) != 2 {
		t.Errorf("the same key again: %+v, replayed %v", again, replayed)
	}
	_, _, err = s.Chown(ctx, root, toBob(""), "")
	wantCode(t, err, ckpt.CodeNotFound) // there is no agent left
	_, err = s.Checkpoint(ctx, ann, first.ID, true)
	wantCode(t, err, ckpt.CodeNotFound)
	_, err = s.Latest(ctx, ann, ckpt.CheckpointFilter{Agent: "a"}, true)
	wantCode(t, err, ckpt.CodeNotFound)
	c, err := s.Latest(ctx, bob, ckpt.CheckpointFilter{Agent: "a"}, true)
	must(t, err)
	expect.Equal(t, "the state", string(c.State), `{"n":1}`)
	page, err := s.EventsOf(ctx, bob, 0, 10)
	must(t, err)
	expect.Equal(t, "events", len(page.Events), 1)
	page, err = s.EventsOf(ctx, ann, 0, 10)
	must(t, err)
	expect.Equal(t, "events", len(page.Events), 0)
	plan, _, err := s.Resume(ctx, bob, ckpt.ResumeRequest{Agent: "a"})
	must(t, err)
	expect.Equal(t, "the checkpoint to resume from", string(plan.Checkpoint.ID), first.ID)
	expect.Equal(t, "the next save", save(t, s, bob, "a", ckpt.KindRoutine, `{"n":3}`).Parent, ckpt.Ref(first.ID))
	expect.Equal(t, "the next save", save(t, s, ann, "a", ckpt.KindRoutine, `{"n":4}`).Seq, 1) // another agent of this name
	sound(t, pathOf(s))
	log := sqlite3(t, "-readonly", pathOf(s), `SELECT action, owner, agent, who, reason FROM audit_log WHERE action IN ('give_agent', 'receive_agent') AND agent = 'a' ORDER BY n`)
	expect.Equal(t, "the audit log", log, "give_agent|uid:1001|a|uid:0|moved\nreceive_agent|uid:1002|a|uid:0|moved")
	expect.Equal(t, "what the file has", sqlite3(t, "-readonly", pathOf(s), `SELECT agent, from_owner, to_owner FROM audit_owners ORDER BY agent`), "a|uid:1001|uid:1002\nb|uid:1001|uid:1002")

	back := ckpt.ChownRequest{From: bob.Owner, To: ann.Owner}
	_, _, err = s.Chown(ctx, root, back, "")
	wantCode(t, err, ckpt.CodeConflict) // ann has an agent of this name now
	if !strings.Contains(err.Error(), "uid:1001 already has an agent with the name a: nothing was moved") {
		t.Error(err)
	}
	back.Agent = "b"
	chown(t, s, back)
	save(t, s, ann, "b", ckpt.KindRoutine, `{"n":5}`)
	sound(t, pathOf(s))
}

// TestASaveIsRepeatedAfterChown: a save that the old owner repeats after her agent was given away is answered as before, under an id and
// under a key, also if she has begun a new agent of that name, and if the checkpoint is gone. Nothing is saved again. What the new owner saves stays his.
func TestASaveIsRepeatedAfterChown(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx := t.Context()
	byID, byKey, gone := request("a", ckpt.KindRoutine, `{"n":1}`), request("a", ckpt.KindRecovery, `{"n":2}`), request("a", ckpt.KindRecovery, `{"n":3}`)
	byID.ID, byKey.IdempotencyKey, gone.ID = newID(t), "key-1", newID(t)
	requests := []*ckpt.SaveRequest{byID, byKey, gone}
	var first []*ckpt.Saved
	for _, r := range requests {
		saved, err := s.Save(ctx, ann, r)
		must(t, err)
		first = append(first, saved)
	}
	_, err := s.Delete(ctx, ann, gone.ID)
	must(t, err)
	chown(t, s, toBob("a"))
	again := func() {
		t.Helper()
		for i, r := range requests {
			saved, err := s.Save(ctx, ann, r)
			must(t, err)
			if !saved.Replayed || saved.ID != first[i].ID || saved.Seq != first[i].Seq || saved.Owner != ann.Owner || saved.SHA256 != first[i].SHA256 {
				t.Errorf("the save %d repeated: %+v", i, saved)
			}
		}
	}
	again()
	page, err := s.Agents(ctx, ann, ckpt.AgentFilter{})
	must(t, err)
	if len(page.Agents) != 0 {
		t.Errorf("the old owner has agents again: %+v", page.Agents)
	}
	his := request("a", ckpt.KindRoutine, `{"n":4}`)
	his.ID = newID(t)
	_, err = s.Save(ctx, bob, his)
	must(t, err)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":5}`)
	again()
	if saved, err := s.Save(ctx, ann, his); err == nil && saved.Replayed {
		t.Errorf("the new owner's save is answered to the old one: %+v", saved)
	}
	other := *byKey
	other.State = []byte(`{"n":6}`)
	if saved, err := s.Save(ctx, ann, &other); err != nil || saved.Replayed { // the keys of the new agent are its own
		t.Errorf("another save under a key of the agent that was given away: %+v, %v", saved, err)
	}
	for _, r := range []*ckpt.SaveRequest{byID, byKey, gone} { // and he gets his answers
		if saved, err := s.Save(ctx, bob, r); err != nil || !saved.Replayed || saved.Owner != bob.Owner {
			t.Errorf("the new owner repeats it: %+v, %v", saved, err)
		}
	}
	sound(t, pathOf(s))
}

// TestChownOfOneThatRuns: giving away an agent that runs is refused, and can be
// forced.
func TestChownOfOneThatRuns(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	start(t, s, 7)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	_, _, err := s.Chown(t.Context(), root, toBob("a"), "")
	wantCode(t, err, ckpt.CodeConflict)
	if !strings.Contains(err.Error(), "run main of agent a has an owner that is alive (process 7)") {
		t.Error(err)
	}
	r := toBob("a")
	r.Force = true
	chown(t, s, r)
	expect.Equal(t, "the next save", save(t, s, as(7), "a", ckpt.KindRoutine, `2`).Seq, 1) // a new agent of the old owner
	sound(t, pathOf(s))
}

// TestChownKeepsThePolicy: an agent's effective policy stays the same under its
// new owner, whose own policy would remove checkpoints.
func TestChownKeepsThePolicy(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx := t.Context()
	_, err := s.SetOwnerPolicy(ctx, ann, []byte(`{"routine_keep":0}`))
	must(t, err)
	_, err = s.SetOwnerPolicy(ctx, bob, []byte(`{"routine_keep":1}`))
	must(t, err)
	for i := range 5 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	chown(t, s, toBob("a"))
	save(t, s, bob, "a", ckpt.KindRoutine, `5`)
	expect.Equal(t, "checkpoints", len(seqs(t, s, bob, "a")), 6)
	policy, err := s.Policy(ctx, bob, "a")
	must(t, err)
	expect.Equal(t, "the policy", policy.RoutineKeep, 0)
	sound(t, pathOf(s))
}

// TestChownAndExchange: an agent that changed its owner can be exported and
// imported like any other. An owner who has imported its checkpoints cannot
// also receive the agent.
func TestChownAndExchange(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx := t.Context()
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	chown(t, s, toBob("a"))
	save(t, s, bob, "a", ckpt.KindRoutine, `2`)
	var text bytes.Buffer
	must(t, s.Export(ctx, bob, "a", &text))
	other, _ := open(t)
	_, err := other.Import(ctx, ann, ckpt.ImportRequest{}, bytes.NewReader(text.Bytes()))
	must(t, err)
	expect.Equal(t, "checkpoints", len(seqs(t, other, ann, "a")), 2)
	sound(t, pathOf(other))

	_, err = s.Import(ctx, ann, ckpt.ImportRequest{Agent: "copy"}, bytes.NewReader(text.Bytes()))
	must(t, err)
	_, _, err = s.Chown(ctx, root, ckpt.ChownRequest{From: bob.Owner, To: ann.Owner}, "")
	wantCode(t, err, ckpt.CodeConflict)
	if !strings.Contains(err.Error(), "already has the checkpoint") {
		t.Error(err)
	}
	sound(t, pathOf(s))
}

// TestChownAndKeys: a repeated save with the same id, or a repeated request
// with the same key, is replayed for the new owner.
func TestChownAndKeys(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	r := request("a", ckpt.KindRoutine, `1`)
	r.ID = "01890000-0000-7000-8000-000000000001"
	first, err := s.Save(t.Context(), ann, r)
	must(t, err)
	op := ckpt.OperationRequest{Key: "pay", Name: "pay"}
	_, _, err = s.BeginOperation(t.Context(), ann, mainRun, op)
	must(t, err)
	chown(t, s, toBob("a"))
	r = request("a", ckpt.KindRoutine, `1`)
	r.ID = first.ID
	again, err := s.Save(t.Context(), bob, r)
	must(t, err)
	expect.Equal(t, "the repeated save", again.Seq, first.Seq)
	expect.Equal(t, "the repeated save", again.Replayed, true)
	sound(t, pathOf(s))
}

// TestEraseAfterChown: an erasure removes the texts about the agent, including
// those from the time of its former owner, and no text about another agent of
// the same name.
func TestEraseAfterChown(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx := t.Context()
	say := func(sc ckpt.Scope, agent, word string) {
		t.Helper()
		sc.Reason = word
		_, err := s.SetOwnPolicy(ctx, sc, agent, []byte(`{"routine_keep":`+fmt.Sprint(len(word))+`}`))
		must(t, err)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	say(ann, "a", "secretly")
	chown(t, s, toBob("a"))
	say(bob, "a", "obscure")
	save(t, s, ann, "a", ckpt.KindRoutine, `2`) // her next agent of this name
	say(ann, "a", "harmless")
	texts := func() string {
		return sqlite3(t, "-readonly", pathOf(s), `SELECT group_concat(reason, ' ') FROM (SELECT reason FROM act_texts WHERE reason IS NOT NULL ORDER BY n)`)
	}
	expect.Equal(t, "what was typed", texts(), "secretly moved moved obscure harmless")
	_, err := s.Erase(ctx, bob, "a")
	must(t, err)
	expect.Equal(t, "what was typed", texts(), "harmless")
	sound(t, pathOf(s))
	_, err = s.Erase(ctx, ann, "a")
	must(t, err)
	expect.Equal(t, "what was typed", texts(), "")
	sound(t, pathOf(s))
	expect.Equal(t, "what the file has", sqlite3(t, "-readonly", pathOf(s), `SELECT from_owner, to_owner FROM audit_owners`), "uid:1001|uid:1002")
}

// TestArchivesAfterChown: rows that record a change of owner stay. The archive
// and the database pass verify, even after the agent was erased.
func TestArchivesAfterChown(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	ctx := t.Context()
	for i := range 6 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	chown(t, s, toBob("a"))
	for i := range 6 {
		save(t, s, bob, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	save(t, s, ann, "z", ckpt.KindRoutine, `1`)
	c.add(20 * 24 * time.Hour)
	save(t, s, bob, "a", ckpt.KindRoutine, `9`)
	folder := t.TempDir()
	archive := func() {
		t.Helper()
		s.ArchiveInto(folder, 0o700)
		done, err := s.ArchiveOld(ctx, 10*24*time.Hour)
		must(t, err)
		if done == nil || done.Removed == 0 {
			t.Fatalf("nothing was archived: %+v", done)
		}
		sound(t, pathOf(s))
		reports, err := audit.VerifyArchives(ctx, pathOf(s), folder, nil, nil)
		must(t, err)
		for _, r := range reports {
			for _, problem := range r.Problems {
				t.Errorf("%s: %s", r.Path, problem)
			}
		}
	}
	archive()
	expect.Equal(t, "what the file has", sqlite3(t, "-readonly", pathOf(s), `SELECT count(*) FROM audit_log WHERE action IN ('give_agent', 'receive_agent')`), "2")
	_, err := s.Erase(ctx, bob, "a")
	must(t, err)
	sound(t, pathOf(s))
	c.add(20 * 24 * time.Hour)
	save(t, s, ann, "z", ckpt.KindRoutine, `2`)
	archive()
}

// TestForgedOwners finds agents whose owner was changed in any other way.
func TestForgedOwners(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	save(t, s, ann, "b", ckpt.KindRoutine, `1`)
	chown(t, s, toBob("b"))
	path := pathOf(s)
	must(t, s.Close())
	for name, statements := range map[string]string{
		"an agent":          `UPDATE agents SET owner = 'uid:1002' WHERE name = 'a'`,
		"what was recorded": `UPDATE owner_changes SET to_owner = 'uid:7'`,
		"who had it":        `DELETE FROM owner_changes`,
	} {
		if out, err := edit(t, path, statements); err == nil {
			t.Errorf("%s could be changed: %s", name, out)
		}
	}
	for name, statements := range map[string]string{
		"a new owner":              `DROP TRIGGER agents_change_owners_on_record; UPDATE agents SET owner = 'uid:1002' WHERE name = 'a'`,
		"a record of nothing":      `INSERT INTO owner_changes SELECT id, 1, uid, name, owner, 'uid:7' FROM agents WHERE name = 'a'; UPDATE agents SET owner = 'uid:7' WHERE name = 'a'`,
		"a record that is missing": `DROP TRIGGER owner_changes_are_never_removed; DELETE FROM owner_changes`,
	} {
		copied := filepath.Join(t.TempDir(), "copy.db")
		copyDatabaseTo(t, path, copied)
		if out, err := edit(t, copied, statements); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		report, err := audit.Verify(t.Context(), copied, nil)
		must(t, err)
		found := false
		for _, p := range report.Problems {
			found = found || p.Rule == "owner_change" || p.Rule == "audit_row"
		}
		if !found {
			t.Errorf("%s was not found: %v", name, report.Problems)
		}
	}
}

// TestChownAndQuotas: the size of an agent counts toward the quota of its new
// owner.
func TestChownAndQuotas(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.MaxOwnerBytes = 1 << 20
	s := openWith(t, o)
	_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRoutine, noise(1, 100_000)))
	must(t, err)
	hers, _ := s.Usage.Used(ann.Owner)
	chown(t, s, toBob("a"))
	left, _ := s.Usage.Used(ann.Owner)
	his, _ := s.Usage.Used(bob.Owner)
	if hers < 100_000 || left > 1000 || his < 100_000 {
		t.Errorf("ann had %d bytes and has %d, bob has %d", hers, left, his)
	}
	_, err = s.Erase(t.Context(), bob, "a")
	must(t, err)
	if his, _ = s.Usage.Used(bob.Owner); his > 1000 {
		t.Errorf("bob has %d bytes after the erasure", his)
	}
	sound(t, pathOf(s))
}
