package spans

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// tell stores groups of spans as steps and usage of their runs, and shows them to the drift
// detectors.
func (s *Spans) tell(owner string, groups []*group) error {
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: owner}}
	ahead := make([]func(*ledger.Tx, *ledger.AgentRow, *ledger.RunRow) (*driftlog.Watched, error), len(groups))
	for i, g := range groups {
		past := s.ReadAheadFor(sc, ckpt.RunRef{Agent: g.agent, Run: g.run})
		ahead[i] = func(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) (*driftlog.Watched, error) {
			return s.WatchRun(tx, agent, run, past)
		}
	}
	e := ledger.Entry(sc, "observe_run", "")
	e.Who = ledger.Daemon
	return s.Submit(&ledger.Op{Owner: owner, Claim: sqlite.GoesOn, Entry: e, Do: func(tx *ledger.Tx) error {
		for i, g := range groups {
			t := teller{store: s, tx: tx, owner: owner, group: g, watch: ahead[i]}
			if err := t.tell(); err != nil {
				return err
			}
			tx.GotOn()
		}
		return nil
	}})
}

// teller stores one group.
type teller struct {
	store *Spans
	tx    *ledger.Tx
	owner string
	group *group
	watch func(*ledger.Tx, *ledger.AgentRow, *ledger.RunRow) (*driftlog.Watched, error)

	agent   *ledger.AgentRow
	run     *ledger.RunRow
	watched *driftlog.Watched
	owned   bool // the run has an agent that reports on it: only usage is added
	old     observedRow

	spans         []*said // the spans that still wait
	steps, late   int64
	input, output int64
	cost          float64
	earlier       map[string][]earlierStep // by trace and call id: the steps of this run that earlier spans have become
	toldNS        int64                    // the end of the newest call that the detectors saw in order
	partial       bool
	last          *said
}

// observedRow is a row of the table observed.
type observedRow struct {
	ToldNS int64 `db:"told_ns"`
	Failed bool  `db:"failed"`
}

func (t *teller) tell() error {
	if err := t.claim(); err != nil || len(t.spans) == 0 {
		return err
	}
	for _, do := range []func() error{t.open, t.addSpans, t.close} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// claim keeps the spans that still wait, because an erasure may have removed some.
func (t *teller) claim() error {
	for _, span := range t.group.spans {
		var there bool
		_, err := t.tx.Get(&there, `SELECT EXISTS (SELECT 1 FROM spans
			WHERE owner = ? AND trace = ? AND span = ? AND run_id IS NULL)`, t.owner, span.Trace, span.ID)
		if err != nil {
			return err
		}
		if there {
			t.spans = append(t.spans, span)
		}
	}
	return nil
}

// open finds the run, or makes it. If an agent of this owner itself reports on a run of that name,
// that run is used.
func (t *teller) open() (err error) {
	s, tx := t.store, t.tx
	var speaks int64
	if _, err := tx.Get(&speaks, `SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id
		WHERE a.owner = ? AND r.name = ? AND r.source IS NULL ORDER BY r.id LIMIT 1`,
		t.owner, t.group.run); err != nil {
		return err
	}
	if speaks != 0 {
		t.owned = true
		t.run, t.agent, err = s.RunWithAgent(tx, speaks)
	} else {
		err = t.openObserved()
	}
	if err != nil {
		return err
	}
	tx.Touches(t.run)
	t.watched, err = t.watch(tx, t.agent, t.run)
	return err
}

func (t *teller) openObserved() (err error) {
	s, tx := t.store, t.tx
	if t.agent, err = s.MakeAgent(tx, t.owner, t.group.agent); err != nil {
		return err
	}
	if t.run, err = tx.Run(t.agent.ID, t.group.run); err != nil {
		return err
	}
	began := t.spans[0].Began
	for _, span := range t.spans {
		if span.Began.Before(began.Time) {
			began = span.Began
		}
	}
	if t.run == nil {
		err = tx.Insert(`INSERT INTO runs (id, agent_id, name, source, started_at, updated_at, heartbeat_at, segment_at)
			VALUES (`+ledger.NextRun+`, ?1, ?2, ?3, ?4, ?5, ?5, ?4)`,
			t.agent.ID, t.group.run, ckpt.SourceOTLP, began, tx.Now)
		if err != nil {
			return err
		}
		t.run, err = tx.Run(t.agent.ID, t.group.run)
		return err
	}
	if _, err = tx.Get(&t.old, `SELECT told_ns, failed FROM observed WHERE run_id = ?`, t.run.ID); err != nil || t.run.EndedAt.IsZero() {
		return err
	}
	// The run had ended: this is a new segment of it.
	t.run.Status, t.run.EndedAt, t.run.SegmentAt = ckpt.RunRunning, ckpt.Time{}, began
	return tx.Exec(`UPDATE runs SET status = 'running', ended_at = NULL, segment_at = ?, attempt = attempt + 1 WHERE id = ?`, began, t.run.ID)
}

// addSpans adds the spans one after the other, in the order in which they ended.
func (t *teller) addSpans() error {
	t.last = &said{}
	if err := t.readEarlier(); err != nil {
		return err
	}
	outer := t.outermost()
	for i, span := range t.spans {
		if i%settleAtOnce == settleAtOnce-1 {
			t.tx.GotOn()
		}
		t.partial = t.partial || span.Partial
		t.note(span)
		key, err := t.addSpan(span, outer[span])
		if err != nil {
			return err
		}
		if err := t.tx.Exec(`UPDATE spans SET run_id = ?, step = ?, said = NULL WHERE owner = ? AND trace = ? AND span = ?`,
			t.run.ID, key, t.owner, span.Trace, span.ID); err != nil {
			return err
		}
	}
	return nil
}

// addSpan adds a span, and returns the key of the step that it is in, "" for none. outer is the outermost span of its call.
func (t *teller) addSpan(span, outer *said) (key ckpt.Ref, err error) {
	switch {
	case span.Kind != observed.Tool || t.owned:
		return "", t.addUsage(span)
	case span.Told:
		key, err = t.toldBefore(span)
	case outer != span:
		return ckpt.Ref(outer.Key()), nil
	default:
		key = ckpt.Ref(t.earlierCall(span))
	}
	if err != nil || key != "" {
		return key, err
	}
	return ckpt.Ref(span.Key()), t.addStep(span)
}

// toldBefore returns the key of the step of a call that messages tell of, "" if it has none yet. Earlier messages can have told of
// it, or it has a span: with its id, or with no id but with the name of its tool.
func (t *teller) toldBefore(span *said) (key ckpt.Ref, err error) {
	since := span.Began
	if strings.HasPrefix(t.group.turns[span.Key()], "span:"+unknownTurn) {
		since = ckpt.At(time.Unix(0, 0))
	}
	_, err = t.tx.Get(&key, `SELECT key FROM steps WHERE run_id = ?1 AND key = ?2
		UNION ALL SELECT x.key FROM spans p JOIN steps x ON x.run_id = p.run_id AND x.key = p.step
			WHERE p.run_id = ?1 AND p.call = ?3 AND x.key GLOB 'span:*' AND x.ended_at BETWEEN ?4 AND ?5
		UNION ALL SELECT x.key FROM (SELECT key FROM steps WHERE run_id = ?1 AND started_at BETWEEN ?4 AND ?5 AND name = ?6 AND key GLOB 'span:*'
				ORDER BY started_at DESC LIMIT 0 + ?7) x
			JOIN spans p ON p.owner = ?8 AND p.trace = substr(x.key, 6, 32) AND p.span = substr(x.key, 39) AND p.call IS NULL
		LIMIT 1`, t.run.ID, span.Key(), ckpt.Ref(span.Call), since, span.Ended, span.Name, nearby, t.owner)
	return key, err
}

// nearby is how many of the newest steps of one tool can be the step of a call that messages tell of.
const nearby = 64

// outermost finds for each span of a tool the outermost span of the same call, which becomes the
// step. Frameworks nest spans of one call: they have the same trace and call id, and overlap in
// time. A call id alone is no identity, because local models use the same one again and again.
func (t *teller) outermost() map[*said]*said {
	outer := map[*said]*said{}
	tools := slices.DeleteFunc(slices.Clone(t.spans), func(s *said) bool { return s.Kind != observed.Tool || s.Told })
	slices.SortFunc(tools, func(a, b *said) int {
		return cmp.Or(cmp.Compare(a.BeganNS, b.BeganNS), cmp.Compare(b.EndedNS, a.EndedNS), cmp.Compare(a.ID, b.ID))
	})
	newest := map[string]*said{} // by trace and call id; those before it had ended when it began
	for _, span := range tools {
		outer[span] = span
		if span.Call == "" {
			continue
		}
		id := span.call()
		if have := newest[id]; have != nil && span.BeganNS <= have.EndedNS {
			outer[span] = have
			have.fill(span)
			continue
		}
		newest[id] = span
	}
	return outer
}

// fill takes from an inner span what the outer one lacks.
func (s *said) fill(inner *said) {
	if s.Sig == "" || s.Sig == observer.UnknownCall {
		s.Sig, s.Shape, s.Effect = cmp.Or(inner.Sig, s.Sig), cmp.Or(s.Shape, inner.Shape), cmp.Or(s.Effect, inner.Effect)
	}
	if s.Args == nil {
		s.Args = inner.Args
	}
	if s.Result == nil {
		s.Result = inner.Result
	}
	s.Res, s.Cause, s.Error = cmp.Or(s.Res, inner.Res), cmp.Or(s.Cause, inner.Cause), cmp.Or(s.Error, inner.Error)
	s.Failed, s.Negative, s.Unparsable = s.Failed || inner.Failed, s.Negative || inner.Negative, s.Unparsable || inner.Unparsable
}

// call names a call in its trace. Calls at different times can have the same name.
func (s *said) call() string { return s.Trace + "/" + s.Call }

// earlierStep is a step that was made from a span in an earlier transaction.
type earlierStep struct {
	Call  string    `db:"call"`
	Step  string    `db:"step"`
	Began ckpt.Time `db:"started_at"`
	Ended ckpt.Time `db:"ended_at"`
}

// readEarlier reads the steps of this run that were made from earlier spans of the same traces.
func (t *teller) readEarlier() error {
	t.earlier = map[string][]earlierStep{}
	read := map[string]bool{}
	for _, span := range t.spans {
		if span.Kind != observed.Tool || span.Call == "" || t.owned || read[span.Trace] {
			continue
		}
		read[span.Trace] = true
		var rows []earlierStep
		err := t.tx.List(&rows, `SELECT p.trace || '/' || p.call AS call, x.key AS step, x.started_at, x.ended_at
			FROM spans p JOIN steps x ON x.run_id = p.run_id AND x.key = p.step
			WHERE p.owner = ? AND p.trace = ? AND p.run_id = ? AND p.call IS NOT NULL ORDER BY x.started_at, x.id`,
			t.owner, span.Trace, t.run.ID)
		if err != nil {
			return err
		}
		for _, row := range rows {
			t.earlier[row.Call] = append(t.earlier[row.Call], row)
		}
	}
	return nil
}

// earlierCall is the key of a step that was made earlier from another span of the same call, "" if
// there is none.
func (t *teller) earlierCall(span *said) string {
	if span.Call == "" {
		return ""
	}
	steps := t.earlier[span.call()]
	after := sort.Search(len(steps), func(i int) bool { return steps[i].Began.After(span.Ended.Time) })
	if after == 0 || span.Began.After(steps[after-1].Ended.Time) { // such steps do not overlap each other
		return ""
	}
	return steps[after-1].Step
}

// addStep makes a step of a tool call.
func (t *teller) addStep(span *said) error {
	tx := t.tx
	how, stretch := driftlog.InOrder, t.run.Stretch
	if span.EndedNS < t.old.ToldNS {
		how, stretch = driftlog.Late, 0 // 0 keeps it from being counted again after a restart
		t.late++
	} else {
		t.toldNS = span.EndedNS
	}
	turn := t.group.turns[span.Key()]
	status, name := ckpt.StepSucceeded, cmp.Or(span.Name, "tool")
	if span.Failed {
		status = ckpt.StepFailed
	}
	outcome := ckpt.Ref("")
	if span.Negative {
		outcome = ckpt.StepNegative
	}
	err := tx.Insert(insertStep, t.run.ID, span.Key(), name, string(status), span.Args, span.Result, ckpt.Ref(span.Error),
		span.Began, span.Ended, span.DurationMS, t.run.LastSeq,
		stretch, ckpt.Ref(span.Sig), ckpt.Ref(span.Res), ckpt.Ref(span.Cause), span.Unparsable, ckpt.Ref(turn), outcome,
		ckpt.Ref(span.Shape), ckpt.Ref(span.Effect))
	if err != nil {
		return err
	}
	t.steps++
	print := span.print(turn)
	print.Tool, print.AfterSeq = name, t.run.LastSeq
	return t.store.SeeObserved(tx, t.agent, t.run, t.watched, print, how, t.partial)
}

const insertStep = `INSERT INTO steps (run_id, key, name, status, args, result, error, started_at, ended_at, duration_ms, after_seq,
	stretch, sig, res, cause, unparsable, turn, outcome, shape, effect) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// addUsage counts the usage of a model. The usage in an agent's span is the sum of the spans below
// it, and is not counted again. Nor is that of a span inside a span of a model: an emitter has wrapped a client that emits, too.
func (t *teller) addUsage(span *said) error {
	if span.Kind != observed.Inference || span.inner {
		return nil
	}
	t.input, t.output, t.cost = t.input+used(span.InputTokens), t.output+used(span.OutputTokens), t.cost+used(span.CostUSD)
	print := observer.StepPrint{Key: span.Key(), Tool: "model", Began: span.Began.Time, At: span.Ended.Time,
		AfterSeq: t.run.LastSeq, Measures: span.Measures}
	return t.store.SeeObserved(t.tx, t.agent, t.run, t.watched, print, driftlog.Usage, t.partial)
}

func used[N int64 | float64](n *N) N {
	if n == nil || !(*n > 0) {
		return 0
	}
	return min(*n, 1e12)
}

// note keeps the newest span, and the result of the newest root.
func (t *teller) note(span *said) {
	if span.EndedNS >= t.last.EndedNS {
		t.last = span
	}
	if span.Parent == "" {
		t.old.Failed = span.Failed
	}
}

// close adds up the group, and sets when the run ends if no more spans come.
func (t *teller) close() error {
	tx := t.tx
	if err := tx.Exec(ledger.UpdateObserved, tx.Now, t.steps, t.input, t.output, t.cost, t.run.ID); err != nil {
		return err
	}
	if t.partial && !t.owned {
		if err := tx.Exec(`UPDATE runs SET partial = 1 WHERE id = ? AND partial = 0`, t.run.ID); err != nil {
			return err
		}
	}
	if !t.owned {
		after := endQuiet
		if t.group.trace != "" && t.group.rootEnded {
			after = endTrace
		}
		if err := tx.Insert(`INSERT INTO observed (run_id, ends_at, told_ns, last_at, failed) VALUES (?1, ?2, ?3, ?4, ?5)
			ON CONFLICT (run_id) DO UPDATE SET ends_at = ?2, told_ns = max(told_ns, ?3), last_at = max(last_at, ?4), failed = ?5`,
			t.run.ID, ckpt.At(tx.Now.Add(after)), t.toldNS, t.last.Ended, t.old.Failed); err != nil {
			return err
		}
	}
	if late := t.late; late > 0 {
		tx.OnCommit(func() { t.store.late.Add(late) })
	}
	e := ledger.DaemonEntry(t.agent, "observe_run")
	e.Run, e.Detail = t.run.Name, map[string]any{"spans": len(t.spans), "steps": t.steps, "late": t.late}
	return tx.Audit(e)
}
