package db_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// violations returns what an auditor sees.
func violations(t testing.TB, s *db.Store) []string {
	t.Helper()
	list := []string{}
	must(t, s.RO.Select(&list, `SELECT rule || ' ' || subject FROM audit_violations`))
	return list
}

func setAll(t testing.TB, s *db.Store, sc ckpt.Scope, set string) *ckpt.OwnerPolicySet {
	t.Helper()
	answer, err := s.SetOwnerPolicy(t.Context(), sc, []byte(set))
	must(t, err)
	return answer
}

func setOwn(t testing.TB, s *db.Store, sc ckpt.Scope, agent, own string) *ckpt.Policy {
	t.Helper()
	p, err := s.SetOwnPolicy(t.Context(), sc, agent, []byte(own))
	must(t, err)
	return p
}

// TestPolicyLayers: an agent's own policy takes precedence over its owner's policy for all agents, that one over
// the daemon's, and that one over the defaults. Each value says which layer it comes from.
func TestPolicyLayers(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	must(t, s.SetDaemonPolicy([]byte(`{"routine_keep":4,"recovery_keep":"2d","max_events":50,"budget":{"steps":9,"tokens":1000},"detectors":{"repeat":{"tier":"off"},"cycle":{"warn":9}}}`)))
	setAll(t, s, ann, `{"routine_keep":5,"recovery_keep":"3d","budget":{"steps":10},"detectors":{"cycle":{"critical":20}},"secrets":"off"}`)
	setOwn(t, s, ann, "a", `{"routine_keep":6,"secrets":"warn","budget":{"cost_usd":2}}`)
	got, err := s.PolicyLayers(t.Context(), ann, "a")
	must(t, err)
	want := ckpt.DefaultPolicy()
	want.RoutineKeep, want.RecoveryKeep, want.MaxEvents = 6, ckpt.Duration(3*ckpt.Day), 50
	want.Budget = ckpt.Budget{Steps: 10, Tokens: 1000, CostUSD: 2}
	want.Detectors = map[string]ckpt.Detector{"repeat": {Tier: "off"}, "cycle": {Critical: 20}}
	if diff := cmp.Diff(want, got.Policy); diff != "" {
		t.Errorf("what counts (-want +got)\n%s", diff)
	}
	for name, from := range map[string]ckpt.PolicySource{
		"routine_keep": "agent", "recovery_keep": "owner", "max_events": "daemon", "ended_keep": "default", "secrets": "agent", "budget.steps": "owner",
		"budget.tokens": "daemon", "budget.cost_usd": "agent", "detectors.repeat": "daemon", "detectors.cycle": "owner",
	} {
		if got.From[name] != from {
			t.Errorf("%s is from %q, not from %q", name, got.From[name], from)
		}
	}
	// Calls that read the policy get the same.
	p, err := s.Policy(t.Context(), ann, "a")
	must(t, err)
	if diff := cmp.Diff(want, *p); diff != "" {
		t.Errorf("Policy (-want +got)\n%s", diff)
	}
	// Another owner has only the daemon's policy. An agent without settings has both.
	bobs, err := s.PolicyLayers(t.Context(), bob, ckpt.AllAgents)
	must(t, err)
	if bobs.Policy.RoutineKeep != 4 || bobs.From["routine_keep"] != "daemon" || string(bobs.Owner) != "{}" || bobs.Agent != nil {
		t.Errorf("bob's: %+v", bobs)
	}
	for range 9 {
		save(t, s, ann, "new", ckpt.KindRoutine, `1`)
		save(t, s, bob, "new", ckpt.KindRoutine, `1`)
	}
	if a, b := len(seqs(t, s, ann, "new")), len(seqs(t, s, bob, "new")); a != 5 || b != 4 {
		t.Errorf("ann's has %d, bob's %d checkpoints", a, b)
	}
	// Removing the settings goes back, layer by layer.
	setOwn(t, s, ann, "a", `{}`)
	setAll(t, s, ann, `{}`)
	must(t, s.SetDaemonPolicy(nil))
	p, err = s.Policy(t.Context(), ann, "a")
	must(t, err)
	if diff := cmp.Diff(ckpt.DefaultPolicy(), *p); diff != "" {
		t.Errorf("at the end (-want +got)\n%s", diff)
	}
	var texts []string
	must(t, s.RO.Select(&texts, `SELECT DISTINCT policy || policy_own FROM agents UNION SELECT owner FROM policies`))
	if !slices.Equal(texts, []string{"{}{}"}) {
		t.Errorf("left: %q", texts)
	}
}

// TestOwnerPolicyJudgesRuns: one command applies to all agents. The runs of all agents without other settings are
// judged in the transaction that changes the policy. The audit log records the act and the removals, and no
// invariant is broken before or after.
func TestOwnerPolicyJudgesRuns(t *testing.T) {
	t.Parallel()
	s, clock := open(t)
	setAll(t, s, ann, `{"routine_keep":0}`)
	setOwn(t, s, ann, "keeper", `{"routine_keep":7}`)
	for _, agent := range []string{"a", "b", "keeper"} {
		for i := range 7 {
			save(t, s, ann, agent, ckpt.KindRoutine, fmt.Sprint(i))
		}
		save(t, s, ann, agent, ckpt.KindRecovery, `"r"`)
		save(t, s, ann, agent, ckpt.KindRoutine, `"last"`)
	}
	save(t, s, bob, "a", ckpt.KindRoutine, `1`)
	clock.add(2 * time.Hour)
	answer := setAll(t, s, ann, `{"routine_keep":2,"recovery_keep":"1h"}`)
	if answer.Agents != 3 || answer.Removed != 2*(6+1)+1 {
		t.Errorf("%d agents changed, %d checkpoints went", answer.Agents, answer.Removed)
	}
	for agent, want := range map[string]string{"a": "[routine 9 routine 7]", "b": "[routine 9 routine 7]", "keeper": "[routine 9 routine 7 routine 6 routine 5 routine 4 routine 3 routine 2]"} {
		if got := fmt.Sprint(seqs(t, s, ann, agent)); got != want {
			t.Errorf("%s has %s, want %s", agent, got, want)
		}
	}
	if list := violations(t, s); len(list) > 0 {
		t.Errorf("audit_violations: %v", list)
	}
	var acts []string
	must(t, s.RO.Select(&acts, `SELECT action || ' ' || who || ' ' || owner || ' ' || coalesce(detail ->> '$.policy', '') FROM audit_log WHERE action LIKE 'set_owner%' ORDER BY n`))
	want := []string{
		`set_owner_policy uid:1001 uid:1001 {"routine_keep":0}`,
		`set_owner_policy uid:1001 uid:1001 {"recovery_keep":"1h","routine_keep":2}`,
	}
	if diff := cmp.Diff(want, acts); diff != "" {
		t.Errorf("acts (-want +got)\n%s", diff)
	}
	var removals int
	must(t, s.RO.Get(&removals, `SELECT count(*) FROM audit_removals WHERE agent <> '' AND reason <> '' AND who = 'uid:1001'`))
	if removals < 15 {
		t.Errorf("%d removals are in the log", removals)
	}
	// Repeating the same change has no effect.
	if again := setAll(t, s, ann, `{"recovery_keep":"60m","routine_keep":2}`); again.Agents != 0 {
		t.Errorf("%d agents changed again", again.Agents)
	}
	sound(t, s.Opt.Path)
}

// TestOwnerPolicyIsOnesOwn: a user cannot set another owner's policy. An administrator can, and the log records it.
// There is no policy for all owners together.
func TestOwnerPolicyIsOnesOwn(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	setAll(t, s, bob, `{"routine_keep":1}`)
	if p, _ := s.Policy(t.Context(), ann, "a"); p.RoutineKeep != 3 {
		t.Errorf("ann keeps %d", p.RoutineKeep)
	}
	all := root
	all.Target = ckpt.AllOwners
	_, err := s.SetOwnerPolicy(t.Context(), all, []byte(`{}`))
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.PolicyLayers(t.Context(), all, ckpt.AllAgents)
	wantCode(t, err, ckpt.CodeInvalid)
	anns := root
	anns.Target = ann.Caller.Owner
	setAll(t, s, anns, `{"routine_keep":9}`)
	if p, _ := s.Policy(t.Context(), ann, "a"); p.RoutineKeep != 9 {
		t.Errorf("ann keeps %d after the administrator's change", p.RoutineKeep)
	}
	var who string
	must(t, s.RO.Get(&who, `SELECT who FROM audit_log WHERE action = 'set_owner_policy' AND owner = 'uid:1001'`))
	if who != "uid:0" {
		t.Errorf("the log says that %s did it", who)
	}
	for _, bad := range []string{`{"routine_keep":-1}`, `[]`, `{"what":1}`, `{"detectors":{"repeat":{"tear":1}}}`, ``} {
		if _, err := s.SetOwnerPolicy(t.Context(), ann, []byte(bad)); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestPoliciesThatContradict: an owner is told which agent's policy contradicts the new one. The daemon's policy is
// applied without those agents, so that no user can prevent the daemon from starting.
func TestPoliciesThatContradict(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.Drift = drift.New()
	s := openWith(t, o)
	save(t, s, ann, "free", ckpt.KindRoutine, `1`)
	setOwn(t, s, ann, "strict", `{"rules":[]}`)
	both := `{"rules":[{"name":"mine","when":"true","severity":"info","message":"m"}],"detectors":{"mine":{"tier":"off"}},"routine_keep":8}`
	_, err := s.SetOwnerPolicy(t.Context(), ann, []byte(both))
	wantCode(t, err, ckpt.CodeConflict)
	if !strings.Contains(err.Error(), "strict") {
		t.Errorf("it does not name the agent: %v", err)
	}
	if p, _ := s.Policy(t.Context(), ann, "free"); p.RoutineKeep != 3 {
		t.Errorf("a part was done: %d", p.RoutineKeep)
	}
	must(t, s.SetDaemonPolicy([]byte(both)))
	for agent, keep := range map[string]int{"free": 8, "strict": 3} {
		if p, _ := s.Policy(t.Context(), ann, agent); p.RoutineKeep != keep {
			t.Errorf("%s keeps %d, not %d", agent, p.RoutineKeep, keep)
		}
	}
}

// TestDaemonPolicyOutlivesItsStart: a change of the layer is recorded as an act. A start with the same policy is
// not.
func TestDaemonPolicyOutlivesItsStart(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	for i, set := range []string{`{"routine_keep":1}`, `{ "routine_keep": 1 }`, `{"routine_keep":2}`, ``} {
		s := openWith(t, o)
		must(t, s.SetDaemonPolicy([]byte(set)))
		for range 3 {
			save(t, s, ann, "a", ckpt.KindRoutine, `1`)
		}
		if got := len(seqs(t, s, ann, "a")); got != []int{1, 1, 2, 3}[i] {
			t.Errorf("start %d: %d checkpoints", i, got)
		}
		var acts int
		must(t, s.RO.Get(&acts, `SELECT count(*) FROM audit_log WHERE action = 'set_daemon_policy' AND who = 'daemon'`))
		if acts != []int{1, 1, 2, 3}[i] {
			t.Errorf("start %d: %d acts", i, acts)
		}
		if list := violations(t, s); len(list) > 0 {
			t.Errorf("audit_violations: %v", list)
		}
		must(t, s.Close())
	}
}

// TestOwnerPolicyCountsForTheFirstSave: an owner's policy for all agents also applies to an agent that does not
// exist yet.
func TestOwnerPolicyCountsForTheFirstSave(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.Secrets, o.Drift = secrets.Scan{}, drift.New()
	s := openWith(t, o)
	setAll(t, s, ann, `{"secrets":"reject","schema":{"type":"object","required":["n"]}}`)
	_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `{"n":1,"password":"hunter2hunter2"}`))
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `{"m":1}`))
	wantCode(t, err, ckpt.CodeSchemaMismatch)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	save(t, s, bob, "a", ckpt.KindRoutine, `{"m":1}`)
}

// TestImportKeepsThePolicyThatCounted: the owner's policy that was effective at the export also applies after the
// import. A run that waits for a person there must not be safe to continue here.
func TestImportKeepsThePolicyThatCounted(t *testing.T) {
	t.Parallel()
	from, _ := open(t)
	setAll(t, from, ann, `{"autoresume":false,"routine_keep":9}`)
	save(t, from, ann, "a", ckpt.KindRoutine, `1`)
	setOwn(t, from, ann, "b", `{"routine_keep":5}`)
	export := func(s *db.Store) string {
		var b bytes.Buffer
		must(t, s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: []string{"a", "b"}}, &b))
		return b.String()
	}
	text := export(from)
	for _, here := range []string{`{}`, `{"routine_keep":2,"secrets":"off"}`} {
		to, _ := open(t)
		setAll(t, to, ann, here)
		_, err := to.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
		must(t, err)
		for agent, keep := range map[string]int{"a": 9, "b": 5} {
			p, err := to.Policy(t.Context(), ann, agent)
			must(t, err)
			if p.Autoresume || p.RoutineKeep != keep || p.Secrets != ckpt.SecretsWarn {
				t.Errorf("with %s here, %s has %+v", here, agent, p)
			}
		}
		if diff := cmp.Diff(lines(text, "agent"), lines(export(to), "agent")); diff != "" {
			t.Errorf("with %s here, the second export differs (-first +second)\n%s", here, diff)
		}
		// A change here affects values that were not set there.
		setAll(t, to, ann, `{"max_events":77}`)
		if p, _ := to.Policy(t.Context(), ann, "a"); p.MaxEvents != 77 || p.RoutineKeep != 9 {
			t.Errorf("after a change here: %d, %d", p.MaxEvents, p.RoutineKeep)
		}
	}
}

// lines returns the lines of an export with a type.
func lines(text, kind string) (list []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, `{"type":"`+kind+`"`) {
			list = append(list, line)
		}
	}
	return list
}

// TestPreOperationAloneGoesByAge: a pre_operation checkpoint without an operation is removed after
// pre_operation_keep, and audit_violations reports one that stays too long. A checkpoint with an operation stays
// until the operation has succeeded.
func TestPreOperationAloneGoesByAge(t *testing.T) {
	t.Parallel()
	s, clock := open(t)
	setAll(t, s, ann, `{"pre_operation_keep":"7d"}`)
	alone := save(t, s, ann, "a", ckpt.KindPreOperation, `1`)
	_, _, err := s.BeginOperation(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.OperationRequest{Key: "k", Name: "n", State: []byte(`2`)})
	must(t, err)
	save(t, s, ann, "a", ckpt.KindRoutine, `3`)
	must(t, s.Judged(t.Context(), clock.Now()))
	worker := func() int { // does what a round of the worker does
		runs, err := s.Due(t.Context(), clock.Now(), 0, 10)
		must(t, err)
		removed, err := s.Apply(t.Context(), runs, retention.Plan, clock.Now(), 10, false)
		must(t, err)
		must(t, s.Judged(t.Context(), clock.Now()))
		return len(removed)
	}
	clock.add(7*ckpt.Day - time.Millisecond)
	if n := worker(); n != 0 {
		t.Fatalf("%d went too early", n)
	}
	clock.add(time.Hour)
	if got := fmt.Sprint(seqs(t, s, ann, "a")); got != "[routine 3 pre_operation 2 pre_operation 1]" {
		t.Fatal(got)
	}
	must(t, s.Judged(t.Context(), clock.Now())) // as if a worker had judged and left it there
	if list := violations(t, s); fmt.Sprint(list) != "[pre_operation_expired "+alone.ID+"]" {
		t.Errorf("audit_violations: %v", list)
	}
	if n := worker(); n != 1 {
		t.Errorf("%d went", n)
	}
	if got := fmt.Sprint(seqs(t, s, ann, "a")); got != "[routine 3 pre_operation 2]" {
		t.Error(got)
	}
	if list := violations(t, s); len(list) > 0 {
		t.Errorf("audit_violations: %v", list)
	}
	// The owner's policy for all agents can set it too, and 0s keeps them.
	setAll(t, s, ann, `{"pre_operation_keep":"0s"}`)
	save(t, s, ann, "a", ckpt.KindPreOperation, `4`)
	save(t, s, ann, "a", ckpt.KindRoutine, `5`)
	clock.add(900 * ckpt.Day)
	worker()
	if got := fmt.Sprint(seqs(t, s, ann, "a")); got != "[routine 5 pre_operation 4 routine 3 pre_operation 2]" {
		t.Error(got)
	}
	setAll(t, s, ann, `{"pre_operation_keep":"1h"}`)
	if got := fmt.Sprint(seqs(t, s, ann, "a")); got != "[routine 5 routine 3 pre_operation 2]" {
		t.Error(got)
	}
}

// TestALongRetentionGetsOn: a policy that is applied to many runs, by a change or by a prune, shows
// after each run that it makes progress. Otherwise the watchdog would take the writer for stuck.
func TestALongRetentionGetsOn(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir()+"/ckpt.db", newClock())
	var s *db.Store
	var watched bool
	var looked time.Time // when the plan last gave an answer
	calls := 0
	o.Retention = func(h retention.History, p ckpt.Policy, now time.Time) []retention.Verdict {
		verdicts := retention.Plan(h, p, now)
		if !watched {
			return verdicts
		}
		if stalled := s.Stalled(); calls > 0 && stalled > time.Since(looked) {
			t.Errorf("call %d of the plan: the writer is seen standing still for %v, since before the call before it", calls, stalled)
		}
		calls++
		expect.Soon(t, "some time to pass", func() bool { return s.Stalled() > 5*time.Millisecond })
		looked = time.Now()
		return verdicts
	}
	s = openWith(t, o)
	for i := range 4 {
		r := request("a", ckpt.KindRoutine, `1`)
		r.Run = fmt.Sprint("r", i)
		_, err := s.Save(t.Context(), ann, r)
		must(t, err)
	}
	for name, do := range map[string]func() error{
		"a change": func() error {
			_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":1}`))
			return err
		},
		"a prune": func() error { _, _, err := s.Prune(t.Context(), ann, ckpt.PruneRequest{Agent: "a"}, ""); return err },
	} {
		watched, calls = true, 0
		must(t, do())
		if watched = false; calls < 4 {
			t.Errorf("%s asked the plan %d times about 4 runs", name, calls)
		}
	}
}
