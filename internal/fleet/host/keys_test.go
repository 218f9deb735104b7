package host

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// keyFile makes a key file with one key.
func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if _, err := AddKey(path, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	return path
}

// keysWithout makes a copy of a key file without the keys whose lines begin with some words.
func keysWithout(t *testing.T, path, words string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool { return strings.HasPrefix(line, words+" ") })
	path = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func keysIn(path string) func() (*seal.Ring, error) {
	return func() (*seal.Ring, error) { return readKeyFile(path) }
}

// canaries writes a separate word into every text that a user or an agent can enter.
func canaries(t *testing.T, s *db.Store) (words []string) {
	t.Helper()
	ctx, ref := t.Context(), ckpt.RunRef{Agent: "a", Run: "main"}
	must := failsOn(t)
	word := func(where string) string {
		words = append(words, "canary-"+where)
		return "canary-" + where
	}
	_, _, err := s.StartRun(ctx, fleetUser, ckpt.RunRequest{Agent: "a", Goal: ckpt.Ref(word("goal"))})
	must(err)
	for i := range 3 {
		_, err := s.Save(ctx, fleetUser, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON,
			State: fmt.Appendf(nil, `{"secret":"%s","history":"%s","n":%d}`, word(fmt.Sprint("state", i)), strings.Repeat("0123456789abcdef", 900+i), i)})
		must(err)
	}
	_, _, err = s.BeginStep(ctx, fleetUser, ref, ckpt.StepRequest{Key: "k1", Name: "search", Args: ckpt.JSON(`{"q":"` + word("args") + `"}`)})
	must(err)
	_, _, err = s.BeginOperation(ctx, fleetUser, ref, ckpt.OperationRequest{Key: "pay-1", Name: "pay", State: []byte(`{"due":"` + word("operation") + `"}`)})
	must(err)
	_, _, err = s.Append(ctx, fleetUser, ref, []ckpt.NewEvent{{Type: "x", Payload: ckpt.JSON(`{"a":"` + word("event") + `"}`)}}, "")
	must(err)
	_, _, err = s.AskQuestion(ctx, fleetUser, ckpt.QuestionRequest{Agent: "a", Run: "main", Key: "q", Question: word("prompt") + "?"})
	must(err)
	_, _, err = s.PostFinding(ctx, fleetUser, "a", ckpt.FindingRequest{Run: "main", Rule: "own", Severity: ckpt.SeverityWarn, Message: word("finding")})
	must(err)
	_, err = s.SetOwnPolicy(ctx, fleetUser, "a", []byte(`{"ignore_tools":["`+word("policy")+`"],"routine_keep":10}`))
	must(err)
	return words
}

// found returns the words that occur in a dump, as text or as bytes.
func found(dump string, words []string) (list []string) {
	for _, w := range words {
		if strings.Contains(dump, w) || strings.Contains(dump, hex.EncodeToString([]byte(w))) {
			list = append(list, w)
		}
	}
	return list
}

// TestFleetSealed ships with a key: no text that a user or an agent entered is readable in the engine, and all of
// it comes back on a host with the key.
func TestFleetSealed(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	words := canaries(t, lost)
	keys := keyFile(t)
	old := shipperOf(lost, url, "lost")
	old.keys = keysIn(keys)
	old.who.Store(&fleet.Identities{DB: lost.ID, Named: map[string]string{fleetUser.Owner: "acme/build"}})
	defer old.hangUp()
	if err := old.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := found(server.Dump("fleet"), words); len(got) > 0 {
		t.Errorf("the engine has %q in the clear", got)
	}
	for _, table := range []string{"fleet_agents", "fleet_runs", "fleet_checkpoints", "fleet_segments", "fleet_rows"} {
		if got := server.Rows("fleet", `SELECT DISTINCT key_id FROM `+table); len(got) != 1 || !strings.HasPrefix(got[0], "20") {
			t.Errorf("%s is sealed with %q", table, got)
		}
	}
	t.Run("in the clear the words are there", func(t *testing.T) {
		plain := server.Database("plain")
		if _, _, err := Migrate(t.Context(), plain); err != nil {
			t.Fatal(err)
		}
		s := shipperOf(lost, plain, "lost")
		defer s.hangUp()
		if err := s.once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := found(server.Dump("plain"), words); len(got) < len(words)-2 { // pieces of states are deflated
			t.Errorf("without a key only %q of %q are there: this test sees nothing", got, words)
		}
	})
	t.Run("a claim needs the key", func(t *testing.T) {
		other := claimantOf(openFleetStore(t, filepath.Join(t.TempDir(), "other.db")), url, "other")
		ask := fleet.ClaimRequest{Agent: "a", Run: "main", Force: true}
		_, err := other.Claim(t.Context(), fleetAdmin, ask)
		wantRefused(t, err, ckpt.CodeConflict, "fleet.key_file")
		other.who = func() *fleet.Identities {
			return &fleet.Identities{DB: other.host.DB, Named: map[string]string{fleetUser.Owner: "acme/build"}}
		}
		_, err = other.Claim(t.Context(), fleetUser, fleet.ClaimRequest{Agent: "a", Run: "main"})
		wantRefused(t, err, ckpt.CodeNotFound, "no run that fits")
	})
	new := openFleetStore(t, filepath.Join(t.TempDir(), "new.db"))
	done, refused := claimAll(t, url, new, keys, nil)
	if len(refused) != 0 || len(done) != 1 || len(done[0].Damaged) != 0 {
		t.Fatalf("with the key the claims answer %+v, %v", done, refused)
	}
	text := &strings.Builder{}
	if err := new.Export(t.Context(), fleetUser, "a", text); err != nil {
		t.Fatal(err)
	}
	if got := found(text.String(), words); len(got) < len(words)-3 { // states are base64 or removed by retention
		t.Errorf("only %q of %q came back", got, words)
	}
	newest, err := new.Latest(t.Context(), fleetUser, ckpt.CheckpointFilter{Agent: "a", Kind: ckpt.KindRoutine}, true)
	if err != nil || !strings.Contains(string(newest.State), "canary-state2") {
		t.Errorf("the newest state came back as %v, %v", newest, err)
	}
}

// TestFleetSealChanged ships in the clear, then with one key, then with another, and skips data that was moved in
// the engine.
func TestFleetSealChanged(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	ship := func(keys func() (*seal.Ring, error)) {
		t.Helper()
		s := shipperOf(lost, url, "lost")
		s.keys = keys
		defer s.hangUp()
		if err := s.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	work(t, lost)
	ship(nil)
	keys := keyFile(t)
	if err := saveOne(lost, t, "sealed", `{"a":1}`); err != nil {
		t.Fatal(err)
	}
	ship(keysIn(keys))
	if _, err := AddKey(keys, "second", time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"second", "moved"} {
		if err := saveOne(lost, t, run, `{"run":"`+run+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	ship(keysIn(keys))
	if got := server.Rows("fleet", `SELECT DISTINCT coalesce(key_id, '') FROM fleet_checkpoints ORDER BY 1`); len(got) != 3 {
		t.Errorf("checkpoints are sealed with %q", got)
	}
	pinned := true
	sealed, err := lost.Latest(t.Context(), fleetUser, ckpt.CheckpointFilter{Agent: "a", Run: "sealed"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lost.Patch(t.Context(), fleetUser, sealed.ID, ckpt.CheckpointPatch{Pinned: &pinned}); err != nil {
		t.Fatal(err)
	}
	ship(nil) // what is known of that checkpoint is in the clear now, and its state is sealed still
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_checkpoints WHERE key_id IS NOT NULL AND doc LIKE '{%'`); got[0] != "1" {
		t.Fatalf("%s sealed checkpoints have a document in the clear: this test sees nothing", got[0])
	}
	server.Exec("fleet", `UPDATE fleet_checkpoints SET body = o.body FROM fleet_checkpoints o JOIN fleet_runs r ON r.uid = o.run_uid AND r.run = 'second'
		WHERE fleet_checkpoints.run_uid = (SELECT uid FROM fleet_runs WHERE run = 'moved')`)
	done, refused := claimAll(t, url, openFleetStore(t, filepath.Join(t.TempDir(), "new.db")), keys, nil)
	if len(refused) != 0 || len(done) != 5 {
		t.Fatalf("the claims answer %+v, %v", done, refused)
	}
	var damaged []fleet.DamagedCheckpoint
	for _, d := range done {
		damaged = append(damaged, d.Damaged...)
	}
	if len(damaged) != 1 || damaged[0].Run != "moved" || !strings.Contains(damaged[0].Reason, "moved here from another row") {
		t.Errorf("what is damaged is %+v", damaged)
	}
}

// TestClaimNeedsEveryKey: a host that lacks one of the keys of a run is refused before anything changes, whichever part of
// the run or of its agent that key has sealed.
func TestClaimNeedsEveryKey(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	must := failsOn(t)
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	_, err := lost.SetOwnPolicy(t.Context(), fleetUser, "a", []byte(`{"takeover":"auto"}`))
	must(err)
	work(t, lost)
	must(saveOne(lost, t, "ended", `{"n":1}`))
	_, _, err = lost.StartRun(t.Context(), fleetUser, ckpt.RunRequest{Agent: "a", Run: "events"})
	must(err)
	_, _, err = lost.Append(t.Context(), fleetUser, ckpt.RunRef{Agent: "a", Run: "events"}, []ckpt.NewEvent{{Type: "x", Payload: ckpt.JSON(`1`)}}, "")
	must(err)
	keys := keyFile(t)
	all, err := Keys(keys)
	must(err)
	first := all.Keys[0].ID
	shipOnce(t, lost, url, "lost", keysIn(keys))
	_, err = AddKey(keys, "second", time.Now())
	must(err)
	for _, run := range []string{"main", "events"} {
		must(saveOne(lost, t, run, `{"n":2}`))
	}
	shipOnce(t, lost, url, "lost", keysIn(keys))
	if got := server.Rows("fleet", `SELECT run, key_id FROM fleet_runs WHERE owner = 'uid:1001' ORDER BY run`); !slices.Equal(got,
		[]string{"ended " + first, "events second", "main second"}) {
		t.Fatalf("the runs are sealed with %q: this test sees nothing", got)
	}

	hostWithout := func(id string) *claimant {
		c := claimantOf(openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db")), url, "without "+id)
		c.keys = keysIn(keysWithout(t, keys, id))
		c.who = func() *fleet.Identities {
			return &fleet.Identities{DB: c.host.DB, Named: map[string]string{fleetUser.Owner: "acme/build"}}
		}
		return c
	}
	old, new := hostWithout("second"), hostWithout(first)
	refused := func(what string, err error, says string) {
		t.Helper()
		if ckpt.CodeOf(err) != ckpt.CodeConflict || !strings.Contains(err.Error(), says) {
			t.Errorf("%s answers %v, want a conflict with %q", what, err, says)
		}
	}
	_, err = new.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: fleetUser.Owner, Force: true})
	refused("a forced claim from a host that may live", err, first+", and this host does not have it: add it to fleet.key_file")
	leaseOver(server, lost.ID)
	for run, c := range map[string]struct {
		*claimant
		lacks string
	}{"main": {new, first}, "events": {new, first}, "ended": {old, "second"}} {
		ask := fleet.ClaimRequest{Agent: "a", Run: run, Owner: fleetUser.Owner}
		_, err := c.Claim(t.Context(), fleetAdmin, ask)
		refused("a claim of "+run, err, c.lacks+", and this host does not have it: add it to fleet.key_file")
		_, err = c.Claim(t.Context(), fleetUser, ask)
		refused("a user's claim of "+run, err, "this host cannot open it: ask an administrator")
		for what, bring := range map[string]func(sc ckpt.Scope) error{
			"a resumption of ": func(sc ckpt.Scope) error {
				return c.Bring(t.Context(), sc, &ckpt.ResumeRequest{Agent: "a", Run: run})
			},
			"a read of thread ": func(sc ckpt.Scope) error {
				return c.BringThread(t.Context(), sc, ckpt.RunRef{Agent: "a", Run: run})
			},
		} {
			refused(what+run, bring(fleetAdminOf(fleetUser.Owner)), c.lacks)
			refused("a user's "+what+run, bring(fleetUser), "ask an administrator")
		}
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_claims`); got[0] != "0" {
		t.Errorf("claims that were refused left %s rows", got[0])
	}

	keeps := claimantOf(openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db")), url, "with both")
	keeps.keys = keysIn(keys)
	done, err := keeps.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "events", Owner: fleetUser.Owner})
	if err != nil || done.Checkpoints != 1 {
		t.Errorf("with both keys the claim answers %+v, %v", done, err)
	}
	done, err = new.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: fleetUser.Owner, Force: true})
	if err != nil || done.Checkpoints != 1 || done.Uncertain == "" {
		t.Fatalf("a forced claim without a key answers %+v, %v", done, err)
	}
	for _, kind := range []string{"checkpoint", "operation", "step", "event"} {
		if !slices.ContainsFunc(done.Damaged, func(d fleet.DamagedCheckpoint) bool { return d.Kind == kind && d.Run == "main" && seal.NoKey(d.Reason) }) {
			t.Errorf("the claim names no %s among what it has left out: %+v", kind, done.Damaged)
		}
	}
}

// TestFleetKeyFile: a file that others may read is refused, and without a key file nothing is shipped.
func TestFleetKeyFile(t *testing.T) {
	t.Parallel()
	path := keyFile(t)
	if _, err := AddKey(path, "second", time.Now()); err != nil {
		t.Fatal(err)
	}
	all, err := Keys(path)
	if err != nil || len(all.Keys) != 2 || all.Keys[0].Seals || !all.Keys[1].Seals || all.Keys[1].ID != "second" {
		t.Errorf("the keys are %+v, %v", all, err)
	}
	c := Config{KeyFile: Credential + "keys", Env: func(string) string { return filepath.Dir(path) }}
	if ring, err := c.ring(); err != nil || len(ring.Keys()) != 2 {
		t.Errorf("a credential reads as %v, %v", ring, err)
	}
	if runtime.GOOS != "windows" {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Keys(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a file that everybody may read answers %v", err)
		}
	}
	s := &shipper{keys: keysIn(filepath.Join(t.TempDir(), "none"))}
	if err := s.loadKeys(); err == nil || s.sealer != nil {
		t.Errorf("a shipper without its keys goes on: %v", err)
	}
}

// TestKeyFileOfAnEditor: keys are added to a file that has no key yet, and to one whose last
// line has no end.
func TestKeyFileOfAnEditor(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# the keys of the fleet", "# the keys of the fleet\n"} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Keys(path); err == nil || !strings.Contains(err.Error(), "ckptsidecar fleet keys add") {
			t.Errorf("a file with %q answers %v", text, err)
		}
		if _, err := AddKey(path, "", time.Now()); err != nil {
			t.Errorf("to a file with %q no key is added: %v", text, err)
			continue
		}
		cut, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.TrimRight(cut, "\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := AddKey(path, "", time.Now()); err != nil {
			t.Errorf("a file that began with %q: %v", text, err)
		}
		if all, err := Keys(path); err != nil || len(all.Keys) != 2 {
			t.Errorf("a file that began with %q has %+v, %v", text, all, err)
		}
	}
}
