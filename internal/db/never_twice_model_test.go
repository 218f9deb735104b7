package db_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// shopModel is an agent that charges with random deaths of its process, of the daemon, answers of people and lives of its run.
// The provider counts each charge by the life and the key of the run.
type shopModel struct {
	t *testing.T
	r *rand.Rand
	o db.Options
	s *db.Store
	p *processes

	c      *clock
	spool  *ckpt.OperationEnd // the end of a charge without the daemon, whose beginning was replayed already
	pid    int                // of the newest process; 0 before the first
	epoch  int64              // of its claim
	open   map[string]ckpt.Operation
	effect map[string]int // by life, key and attempt
	said   map[string]int // by life and key: how often somebody said that it may happen twice
	seen   map[string]shopAttempt
	counts map[string]int
}

// shopAttempt is an attempt as the database has it.
type shopAttempt struct {
	Life       int64    `db:"life"`
	Key        string   `db:"key"`
	Attempt    int64    `db:"attempt"`
	Status     string   `db:"status"`
	EndedAt    ckpt.Ref `db:"ended_at"`
	Error      ckpt.Ref `db:"error"`
	Resolution ckpt.Ref `db:"resolution"`
	Resolved   int64    `db:"rows"` // rows of the audit log that resolve it as it is
	All        int64    `db:"all_rows"`
}

func (a *shopAttempt) id() string { return fmt.Sprintf("%d/%s#%d", a.Life, a.Key, a.Attempt) }

func of(life int64, key string) string { return fmt.Sprintf("%d/%s", life, key) }

const selectShop = `SELECT o.life, o.key, o.attempt, o.status, o.ended_at, o.error, o.resolution,
	(SELECT count(*) FROM audit_log l WHERE l.action = 'resolve_operation' AND l.outcome = 'done' AND l.subject = o.key AND l.life = o.life
		AND l.detail ->> 'attempt' = o.attempt AND l.detail ->> 'status' = o.status AND l.detail ->> 'choice' = o.resolution AND l.who <> '') AS rows,
	(SELECT count(*) FROM audit_log l WHERE l.action = 'resolve_operation' AND l.outcome = 'done' AND l.subject = o.key AND l.life = o.life
		AND l.detail ->> 'attempt' = o.attempt AND l.detail ->> 'was' = 'uncertain') AS all_rows
	FROM audit_operations o ORDER BY o.life, o.key, o.attempt`

// judge checks what must be true after each act.
func (m *shopModel) judge(what string) {
	m.t.Helper()
	fresh(m.t, m.s)
	var rows []shopAttempt
	must(m.t, m.s.RO.SelectContext(m.t.Context(), &rows, selectShop))
	happened := map[string]int{}
	for i := range rows {
		a := &rows[i]
		happened[of(a.Life, a.Key)] += m.effect[a.id()]
		before, known := m.seen[a.id()]
		was := before.Status
		switch {
		case a.Resolution == "" && a.All != 0, a.Resolution != "" && (a.All != 1 || a.Resolved != 1):
			m.t.Fatalf("%s: %s is %s (%s), and %d rows of the audit log resolve it, %d of them so", what, a.id(), a.Status, a.Resolution, a.All, a.Resolved)
		case known && was == "uncertain" && a.Status != was && a.Resolution == "":
			m.t.Fatalf("%s: %s was uncertain and is %s, and nobody resolved it", what, a.id(), a.Status)
		case known && was != "open" && (was != "uncertain" && a.Status != was || a.EndedAt != before.EndedAt || before.Error != "" && a.Error != before.Error):
			m.t.Fatalf("%s: %s was %+v and was rewritten: %+v", what, a.id(), before, *a)
		case a.Status == "failed" && m.effect[a.id()] > 0:
			m.t.Fatalf("%s: %s is failed, and it happened", what, a.id())
		case a.Status == "succeeded" && m.effect[a.id()] == 0:
			m.t.Fatalf("%s: %s is succeeded, and it did not happen", what, a.id())
		}
		m.seen[a.id()] = *a
	}
	for key, times := range happened {
		if times > 1+m.said[key] {
			m.t.Fatalf("%s: %s happened %d times, and it was said %d times that it may happen again", what, key, times, m.said[key])
		}
	}
	m.counts["judged"]++
}

func (m *shopModel) ref() ckpt.RunRef { return ckpt.RunRef{Agent: "a", Epoch: &m.epoch} }

// life is the number of the present life of the run.
func (m *shopModel) life() (n int64) {
	m.t.Helper()
	must(m.t, m.s.RO.GetContext(m.t.Context(), &n, `SELECT coalesce((SELECT life FROM runs WHERE name = 'main'), 1)`))
	return n
}

// begin begins a charge, and may die before or after it.
func (m *shopModel) begin() {
	key := []string{"k1", "k2", "k3", "idem"}[m.r.IntN(4)]
	life := m.life()
	var unresolved int64
	must(m.t, m.s.RO.GetContext(m.t.Context(), &unresolved, `SELECT count(*) FROM audit_operations WHERE key = ? AND status IN ('open', 'uncertain')
		AND NOT (idempotent AND status = 'uncertain' AND life = ?)`, key, life))
	before := m.statuses(key)
	o, _, err := m.s.BeginOperation(m.t.Context(), as(m.pid), m.ref(), ckpt.OperationRequest{Key: key, Name: key, Idempotent: key == "idem"})
	switch {
	case err != nil:
		code := ckpt.CodeOf(err)
		if code == ckpt.CodeUncertainOperation {
			m.counts["refused"]++
		} else if code != ckpt.CodeFenced && code != ckpt.CodeConflict {
			m.t.Fatalf("begin %s: %v", key, err)
		}
		return
	case o.Replayed:
		m.counts["replayed"]++
		return
	case unresolved > 0:
		m.t.Fatalf("%s begins in life %d although an earlier attempt of it is unresolved", key, life)
	}
	if key == "idem" {
		m.said[of(life, key)] += before
	}
	m.counts["begun"]++
	m.open[key] = *o
	if m.r.IntN(5) == 0 {
		return // it dies, or is still at it
	}
	m.effect[fmt.Sprintf("%s#%d", of(life, key), o.Attempt)]++
}

// statuses counts the uncertain attempts of a key, which an idempotent one repeats.
func (m *shopModel) statuses(key string) (n int) {
	must(m.t, m.s.RO.GetContext(m.t.Context(), &n, `SELECT count(*) FROM audit_operations WHERE key = ? AND status = 'uncertain'`, key))
	return n
}

// end ends a charge as its code does: what it does not know is a doubt.
func (m *shopModel) end() {
	for key, o := range m.open {
		end := ckpt.OperationEnd{Key: key, Attempt: o.Attempt, Status: ckpt.OperationUncertain, Error: "TimeoutError"}
		if m.r.IntN(2) == 0 {
			end.Status, end.Error = ckpt.OperationFailed, "refused"
			if m.effect[fmt.Sprintf("%s#%d", of(m.life(), key), o.Attempt)] > 0 {
				end.Status, end.Error = ckpt.OperationSucceeded, ""
			}
		}
		if m.r.IntN(3) == 0 {
			end.Attempt = 0
		}
		_, _, err := m.s.EndOperation(m.t.Context(), as(m.pid), m.ref(), end)
		m.answers("end of "+key, err, ckpt.CodeUncertainOperation, ckpt.CodeFenced, ckpt.CodeConflict, ckpt.CodeNotFound)
		m.counts["end "+string(end.Status)+" "+string(ckpt.CodeOf(err))]++
		if err == nil && end.Status != ckpt.OperationUncertain {
			delete(m.open, key)
		}
		return
	}
}

// answers checks that an act is done or refused for a reason that the model knows. What the triggers of the database refuse
// is a mistake of the program.
func (m *shopModel) answers(what string, err error, refusals ...ckpt.Code) {
	m.t.Helper()
	if err != nil && (!slices.Contains(refusals, ckpt.CodeOf(err)) || strings.Contains(err.Error(), "never rewritten")) {
		m.t.Fatalf("%s: %v", what, err)
	}
}

// offline replays a charge that a process made while the daemon was away, for which its code took the risk: the beginning first,
// and the end at a later time. In between, its process may be found dead, the daemon may stop, and people may answer.
func (m *shopModel) offline() {
	sc := as(m.pid + 1000)
	sc.Spooled = ckpt.At(m.c.Now())
	m.c.add(time.Second)
	ref, life := ckpt.RunRef{Agent: "a"}, m.life()
	if end := m.spool; end != nil {
		m.spool = nil
		var was string
		must(m.t, m.s.RO.GetContext(m.t.Context(), &was, `SELECT coalesce((SELECT status FROM audit_operations WHERE key = 'off' AND life = ? ORDER BY attempt DESC LIMIT 1), 'none')`, life))
		_, _, err := m.s.EndOperation(m.t.Context(), sc, ref, *end)
		code := ckpt.CodeOf(err)
		m.answers("the end of a charge that the code made offline", err, ckpt.CodeFenced, ckpt.CodeConflict, ckpt.CodeNotFound)
		m.counts["spooled end of "+was+" "+string(code)]++
		return
	}
	o, _, err := m.s.BeginOperation(m.t.Context(), sc, ref, ckpt.OperationRequest{Key: "off", Name: "off"})
	if err != nil || o.Replayed {
		m.counts["spooled begin "+string(ckpt.CodeOf(err))]++
		return
	}
	m.said[of(life, "off")]++
	m.spool = &ckpt.OperationEnd{Key: "off", Status: ckpt.OperationFailed, Error: "refused"}
	if m.r.IntN(2) == 0 {
		m.effect[fmt.Sprintf("%s#%d", of(life, "off"), o.Attempt)]++
		m.spool = &ckpt.OperationEnd{Key: "off", Status: ckpt.OperationSucceeded}
	}
	m.counts["spooled"]++
}

// person answers what waits, with what the provider says, or with repeat.
func (m *shopModel) person() {
	page, err := m.s.Prompts(m.t.Context(), ann, ckpt.PromptFilter{Open: true})
	must(m.t, err)
	if len(page.Prompts) == 0 {
		return
	}
	p := page.Prompts[m.r.IntN(len(page.Prompts))]
	answer := ckpt.PromptAnswer{ID: p.ID, Choice: []ckpt.PromptChoice{ckpt.ChoiceResume, ckpt.ChoiceReinitialize, ckpt.ChoiceAbandon}[m.r.IntN(3)], Reason: "looked"}
	if p.Kind != ckpt.PromptOperation || m.r.IntN(4) == 0 { // of an operation, these are refused
		answer.LeaveUncertain = m.r.IntN(2) == 0
		_, _, err := m.s.AnswerPrompt(m.t.Context(), ann, answer)
		if p.Kind == ckpt.PromptOperation && err == nil {
			m.t.Fatalf("%s answers whether %s happened", answer.Choice, p.Operation)
		}
		m.counts["decision "+string(ckpt.CodeOf(err))]++
		return
	}
	var life int64
	must(m.t, m.s.RO.GetContext(m.t.Context(), &life, `SELECT life FROM audit_prompts WHERE id = ?`, p.ID))
	of := of(life, string(p.Operation))
	answer.Choice, answer.LeaveUncertain = ckpt.ChoiceItDidNot, false
	if m.effect[fmt.Sprintf("%s#%d", of, p.Attempt)] > 0 {
		answer.Choice = ckpt.ChoiceItDid
	}
	if m.r.IntN(4) == 0 {
		answer.Choice = ckpt.ChoiceRepeat
	}
	if m.r.IntN(2) == 0 {
		_, _, err = m.s.AnswerPrompt(m.t.Context(), ann, answer)
	} else {
		_, _, err = m.s.ResolveOperation(m.t.Context(), ann, ckpt.RunRef{Agent: "a", Run: p.Run},
			ckpt.OperationResolution{Key: string(p.Operation), Attempt: p.Attempt, Choice: answer.Choice, Reason: "looked"})
	}
	must(m.t, err)
	if answer.Choice == ckpt.ChoiceRepeat {
		m.said[of]++
	}
	m.counts[string(answer.Choice)]++
}

// start lets a new process resume the run, or the same one again.
func (m *shopModel) start() {
	if m.pid == 0 || m.p.Alive(m.p.Identify(m.pid)) != 0 && m.r.IntN(2) == 0 {
		m.pid++
		m.open = map[string]ckpt.Operation{}
	}
	plan, _, err := m.s.Resume(m.t.Context(), as(m.pid), ckpt.ResumeRequest{Agent: "a", PID: m.pid, LeaveUncertain: m.r.IntN(8) == 0, Reason: "it must go on"})
	must(m.t, err)
	if plan.Claimed {
		m.epoch = plan.Epoch
	}
	m.counts["plan "+string(plan.Verdict)]++
}

// die kills the process, and mostly the monitor notices.
func (m *shopModel) die() {
	m.p.kill(m.pid)
	m.pid++
	m.open = map[string]ckpt.Operation{}
	if m.r.IntN(3) == 0 {
		return
	}
	watched, err := m.s.Watched(m.t.Context(), 0, 10)
	must(m.t, err)
	for _, w := range watched {
		_, err := m.s.Interrupt(m.t.Context(), w, ckpt.RunInterrupted, "its process ended")
		must(m.t, err)
	}
	m.counts["died"]++
}

// again stops the daemon, and starts it.
func (m *shopModel) again() {
	shut(m.t, m.s)
	m.s = openWith(m.t, m.o)
	m.counts["daemon"]++
}

// over ends the run, and the next life begins when it is resumed.
func (m *shopModel) over() {
	r := ckpt.EndRequest{Status: []ckpt.RunStatus{ckpt.RunCompleted, ckpt.RunFailed, ckpt.RunInterrupted}[m.r.IntN(3)], LeaveUncertain: m.r.IntN(3) == 0, Reason: "the model says so"}
	var hidden int64
	must(m.t, m.s.RO.GetContext(m.t.Context(), &hidden, `SELECT count(*) FROM audit_operations WHERE status IN ('open', 'uncertain') AND NOT left_uncertain
		AND life = (SELECT life FROM runs WHERE name = 'main')`))
	_, _, err := m.s.EndRun(m.t.Context(), as(m.pid), m.ref(), r)
	if err == nil && hidden > 0 && !r.Status.Resumable() && !r.LeaveUncertain {
		m.t.Fatalf("the run ends as %s over %d operations", r.Status, hidden)
	}
	m.counts["over "+string(ckpt.CodeOf(err))]++
	if err == nil {
		m.open = map[string]ckpt.Operation{}
	}
}

// TestModelNeverTwice: whatever dies and whatever people answer, a charge happens twice only after somebody said repeat or
// idempotent, and no uncertain attempt ever changes without its row of the audit log.
func TestModelNeverTwice(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(1, 12, 200) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			m := &shopModel{t: t, r: rand.New(rand.NewPCG(seed, 45)), p: &processes{dead: map[int]bool{}}, open: map[string]ckpt.Operation{},
				effect: map[string]int{}, said: map[string]int{}, seen: map[string]shopAttempt{}, counts: map[string]int{}}
			c := newClock()
			m.c = c
			m.o = options(filepath.Join(t.TempDir(), "ckpt.db"), c)
			m.o.Resume, m.o.Processes = resume.Make, m.p
			m.s = openWith(t, m.o)
			_, err := m.s.SetOwnPolicy(t.Context(), ann, "a", fmt.Appendf(nil, `{"autoresume":%t,"lives_keep":0}`, seed%2 == 0))
			must(t, err)
			acts := []struct {
				what  string
				often int
				do    func()
			}{
				{"start", 4, m.start}, {"begin", 6, m.begin}, {"end", 4, m.end}, {"person", 3, m.person}, {"die", 2, m.die}, {"over", 1, m.over}, {"again", 1, m.again}, {"offline", 3, m.offline},
			}
			for i := range 160 {
				n := m.r.IntN(24)
				for _, act := range acts {
					if n -= act.often; n < 0 {
						act.do()
						m.judge(fmt.Sprintf("seed %d, act %d: %s", seed, i, act.what))
						break
					}
				}
			}
			t.Logf("seed %d: %v", seed, m.counts)
			if m.counts["begun"] < 5 || m.counts["refused"] == 0 {
				t.Errorf("too little happened: %v", m.counts)
			}
			sound(t, pathOf(m.s))
		})
	}
}
