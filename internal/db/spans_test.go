package db_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// observing is a store that observes spans.
type observing struct {
	*db.Store
	t     testing.TB
	clock *clock
}

func openObserving(t testing.TB, change ...func(*db.Options)) *observing {
	t.Helper()
	c := newClock()
	c.now = time.Unix(1_790_000_000, 0).UTC().Add(time.Minute) // just after the golden spans were made
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.Drift, o.Secrets, o.Resume = drift.New(), secrets.Scan{}, resume.Make
	for _, f := range change {
		f(&o)
	}
	return &observing{Store: openWith(t, o), t: t, clock: c}
}

// golden returns the spans of an emitter, as internal/otlp reads them.
func (o *observing) golden(emitter string) []observed.Span {
	o.t.Helper()
	body, err := os.ReadFile("../otlp/testdata/" + emitter + ".json")
	if err != nil {
		o.t.Fatal(err)
	}
	batch, err := otlp.Read(body, otlp.Options{Form: otlp.JSON, Content: observed.Hash, Now: o.clock.Now()})
	if err != nil {
		o.t.Fatal(err)
	}
	return batch.Spans
}

func (o *observing) send(spans ...observed.Span) *observed.Counts {
	o.t.Helper()
	done, err := o.Observe(o.t.Context(), ann, slices.Clone(spans), observed.Hash)
	if err != nil {
		o.t.Fatal(err)
	}
	return done
}

// settle lets time pass until everything that was sent is in its run.
func (o *observing) settle() {
	o.t.Helper()
	o.clock.add(11 * time.Second)
	o.again()
}

func (o *observing) again() {
	o.t.Helper()
	if err := o.Settle(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// seen is what a reader sees of a run.
type seen struct {
	Run      *ckpt.Run
	Steps    []ckpt.Step
	Findings []string
}

func (o *observing) look(agent, run string) seen {
	o.t.Helper()
	ref := ckpt.RunRef{Agent: agent, Run: run}
	r, err := o.Store.Run(o.t.Context(), ann, ref)
	if err != nil {
		o.t.Fatal(err)
	}
	steps, err := o.Steps(o.t.Context(), ann, ref, ckpt.ListFilter{})
	if err != nil {
		o.t.Fatal(err)
	}
	report, err := o.Drift(o.t.Context(), ann, ckpt.DriftFilter{Agent: agent, Run: run})
	if err != nil {
		o.t.Fatal(err)
	}
	s := seen{Run: r, Steps: steps.Steps}
	for _, f := range report.Findings {
		s.Findings = append(s.Findings, fmt.Sprint(f.Rule, " ", f.Severity))
	}
	slices.Sort(s.Findings)
	return s
}

// toolSpan is a tool call below a root, the nth of its trace.
func toolSpan(trace string, n int, change ...func(*observed.Span)) observed.Span {
	at := time.Unix(1_790_000_000, 0).UTC().Add(time.Duration(n) * 100 * time.Millisecond)
	s := observed.Span{Trace: strings.Repeat(trace, 32), ID: fmt.Sprintf("%016x", n+1), Parent: "00000000000000ff", Kind: observed.Tool, Service: "shop",
		Name: "search", Began: ckpt.At(at), Ended: ckpt.At(at.Add(50 * time.Millisecond))}
	for _, f := range change {
		f(&s)
	}
	s.BeganNS, s.EndedNS = s.Began.UnixNano(), s.Ended.UnixNano()
	return s
}

func failing(s *observed.Span) { s.Failed, s.Error = true, "TimeoutError" }

// rootSpan is the root of a trace.
func rootSpan(trace string, n int, change ...func(*observed.Span)) observed.Span {
	return toolSpan(trace, n, append([]func(*observed.Span){func(s *observed.Span) { s.ID, s.Parent, s.Kind = "00000000000000ff", "", observed.Agent }}, change...)...)
}

func modelSpan(trace string, n int, change ...func(*observed.Span)) observed.Span {
	return toolSpan(trace, n, append([]func(*observed.Span){func(s *observed.Span) {
		s.Kind, s.Name = observed.Inference, ""
		in, out := int64(100), int64(10)
		s.InputTokens, s.OutputTokens = &in, &out
	}}, change...)...)
}

func TestObservedRun(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	spans := o.golden("genai")
	if done := o.send(spans...); done.Steps != 2 || done.Usage != 2 || done.Duplicates != 0 {
		t.Fatalf("%+v", done)
	}
	if done := o.send(spans...); done.Steps != 0 || done.Usage != 0 || done.Duplicates != 4 {
		t.Errorf("the same spans again: %+v", done)
	}
	o.settle()
	o.send(spans...)
	o.settle()
	s := o.look("planner", "conv_5j66UpCpwteGg4YSxUnt7lPY")
	if s.Run.Source != ckpt.SourceOTLP || s.Run.Status != ckpt.RunRunning || s.Run.PID != 0 || s.Run.HeartbeatTimeout != 0 || s.Run.StepsEnded != 2 {
		t.Errorf("the run is %+v", s.Run)
	}
	if len(s.Steps) != 2 {
		t.Fatalf("there are %d steps: a model's answer is none", len(s.Steps))
	}
	first := s.Steps[0]
	if first.Key != "span:0af7651916cd43dd8448eb211c80319c/00000000000000c1" || first.Name != "get_weather" || first.Turn != "span:00000000000000b1" ||
		first.StartedAt.String() != "2026-09-21T14:13:21.000Z" || *first.DurationMS != 200 || first.Args != nil || first.Result != nil {
		t.Errorf("the first step is %+v", first)
	}
	if second := s.Steps[1]; second.Status != ckpt.StepFailed || second.Error != "TimeoutError" || second.Turn != first.Turn {
		t.Errorf("the second step is %+v", second)
	}
	if got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT source, partial, status FROM audit_runs; SELECT input_tokens, output_tokens FROM runs;
		SELECT count(*) FROM audit_violations`); got != "otlp|0|running\n100|20\n0" {
		t.Errorf("an auditor reads %q", got)
	}
}

// TestShuffledSpansGiveTheSameRun: the order of batches, their boundaries, and
// repeated spans do not matter.
func TestShuffledSpansGiveTheSameRun(t *testing.T) {
	t.Parallel()
	var spans []observed.Span
	for n := range 40 {
		change := func(*observed.Span) {}
		if n%3 == 1 {
			spans = append(spans, modelSpan("a", n))
			continue
		}
		if n > 20 {
			change = failing
		}
		spans = append(spans, toolSpan("a", n, change))
	}
	spans = append(spans, rootSpan("a", 50))
	var want seen
	for seed := range int64(6) {
		random := rand.New(rand.NewSource(seed))
		o := openObserving(t)
		list := append(slices.Clone(spans), spans[:20]...)
		if seed > 0 {
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		for len(list) > 0 {
			n := min(len(list), 1+random.Intn(15))
			o.send(list[:n]...)
			list = list[n:]
			o.clock.add(100 * time.Millisecond)
			o.again()
		}
		o.settle()
		got := o.look("shop", strings.Repeat("a", 32))
		got.Run.UpdatedAt, got.Run.AccumulatedMS = ckpt.Time{}, 0
		if seed == 0 {
			if want = got; !slices.Contains(got.Findings, "error_streak critical") {
				t.Errorf("thirteen failures, with good answers of the model between them, are %q", got.Findings)
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
	}
}

func TestObservedRunsBelongToNobody(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("a", 1), rootSpan("a", 2))
	o.settle()
	ref := ckpt.RunRef{Agent: "shop", Run: strings.Repeat("a", 32)}
	ctx := t.Context()
	r := request("shop", ckpt.KindRoutine, `{}`)
	r.Run = ref.Run
	_, saved := o.Save(ctx, ann, r)
	_, _, stepped := o.BeginStep(ctx, ann, ref, ckpt.StepRequest{Key: "k", Name: "n"})
	_, _, resumed := o.Resume(ctx, ann, ckpt.ResumeRequest{Agent: "shop", Run: ref.Run, Force: true})
	_, _, looked := o.Resume(ctx, ann, ckpt.ResumeRequest{Agent: "shop", Run: ref.Run, DryRun: true})
	_, beat := o.Beat(ctx, ann, ref, ckpt.Heartbeat{})
	for name, err := range map[string]error{"save": saved, "step": stepped, "resume": resumed, "dry run": looked, "beat": beat} {
		if ckpt.CodeOf(err) != ckpt.CodeConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An agent that registers the run is responsible for it from then on, and
	// its spans only add usage.
	if _, _, err := o.StartRun(ctx, ann, ckpt.RunRequest{Agent: "shop", Run: ref.Run}); err != nil {
		t.Fatal(err)
	}
	o.send(toolSpan("a", 3), modelSpan("a", 4))
	o.settle()
	o.clock.add(2 * time.Hour)
	o.again()
	if s := o.look("shop", ref.Run); len(s.Steps) != 1 || s.Run.Source != "" || !s.Run.EndedAt.IsZero() {
		t.Errorf("%+v", s)
	}
	if got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT input_tokens FROM runs`); got != "100" {
		t.Errorf("%s tokens", got)
	}
}

func TestObservedRunsEnd(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("a", 1), rootSpan("a", 2, failing), toolSpan("b", 1, func(s *observed.Span) { s.Run = "talk" }))
	o.settle()
	a := strings.Repeat("a", 32)
	o.clock.add(50 * time.Second)
	o.again()
	if s := o.look("shop", a); s.Run.Status != ckpt.RunRunning {
		t.Errorf("after 50 s it is %s", s.Run.Status)
	}
	o.clock.add(15 * time.Second)
	o.again()
	if s := o.look("shop", a); s.Run.Status != ckpt.RunFailed || s.Run.EndedAt.String() != "2026-09-21T14:13:20.250Z" || s.Run.AccumulatedMS != 150 {
		t.Errorf("a minute after its root failed it is %+v", s.Run)
	}
	if s := o.look("shop", "talk"); s.Run.Status != ckpt.RunRunning {
		t.Errorf("a conversation is %s", s.Run.Status)
	}
	o.clock.add(30 * time.Minute)
	o.again()
	if s := o.look("shop", "talk"); s.Run.Status != ckpt.RunCompleted {
		t.Errorf("after half an hour a conversation is %s", s.Run.Status)
	}
	o.send(toolSpan("b", 9, func(s *observed.Span) { s.Run = "talk" }))
	o.settle()
	if s := o.look("shop", "talk"); s.Run.Status != ckpt.RunRunning || s.Run.Attempt != 2 || len(s.Steps) != 2 {
		t.Errorf("a later span does not open a new segment: %+v", s.Run)
	}
}

// TestStructureRootsEndRuns: a root that is no span of an agent, for example a chain or a request over
// HTTP, ends its run as an agent's span does. Such a root alone makes no run.
func TestStructureRootsEndRuns(t *testing.T) {
	t.Parallel()
	structure := func(s *observed.Span) { s.Kind = observed.Structure }
	fails, succeeds := rootSpan("a", 2, structure, failing), rootSpan("a", 2, structure)
	failed := func(s *observed.Span) { failing(s); s.Kind = observed.Agent }
	for name, c := range map[string]struct {
		send func(*observing)
		want ckpt.RunStatus
	}{
		"with its spans":     {func(o *observing) { o.send(toolSpan("a", 1), fails) }, ckpt.RunFailed},
		"before its spans":   {func(o *observing) { o.send(fails); o.send(modelSpan("a", 1)) }, ckpt.RunFailed},
		"first of its spans": {func(o *observing) { o.send(fails, modelSpan("a", 1)) }, ckpt.RunFailed},
		"late":               {func(o *observing) { o.send(toolSpan("a", 1)); o.settle(); o.send(fails) }, ckpt.RunFailed},
		"over a failed part": {func(o *observing) { o.send(toolSpan("a", 1, failed)); o.settle(); o.send(succeeds) }, ckpt.RunCompleted},
	} {
		o := openObserving(t)
		c.send(o)
		o.settle()
		o.clock.add(65 * time.Second)
		o.again()
		s := o.look("shop", strings.Repeat("a", 32))
		if s.Run.Status != c.want || s.Run.EndedAt.String() != "2026-09-21T14:13:20.250Z" {
			t.Errorf("%s: the run is %s and ended at %s", name, s.Run.Status, s.Run.EndedAt)
		}
		if done := o.send(fails, rootSpan("b", 1, structure, failing)); done.Ignored != 2 || done.Usage != 0 || done.Duplicates != 0 {
			t.Errorf("%s: roots are counted as %+v", name, done)
		}
		if got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT count(*) FROM runs; SELECT count(*) FROM spans WHERE trace LIKE 'b%' OR said IS NOT NULL`); got != "1\n0" {
			t.Errorf("%s: runs, and spans of the root alone or that wait: %q", name, got)
		}
	}
}

func TestLateSpansHaveNoPlaceInTheOrder(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("a", 30))
	o.settle()
	for n := range 20 {
		o.send(toolSpan("a", n, failing))
	}
	o.settle()
	s := o.look("shop", strings.Repeat("a", 32))
	if len(s.Findings) != 0 || len(s.Steps) != 21 || s.Run.StepsEnded != 21 {
		t.Errorf("%d steps, %v", len(s.Steps), s.Findings)
	}
}

// TestNestedSpansOfOneCallAreOneStep: one call can have several spans. A call
// id alone does not identify a call.
func TestNestedSpansOfOneCallAreOneStep(t *testing.T) {
	t.Parallel()
	named := func(s *observed.Span) { s.Call = "call_0" }
	outer := toolSpan("a", 1, named, func(s *observed.Span) {
		s.Ended = ckpt.At(s.Began.Add(90 * time.Millisecond))
		s.ID = "00000000000000a1"
	})
	inner := toolSpan("a", 1, named, failing)
	for name, send := range map[string]func(*observing){
		"together":      func(o *observing) { o.send(inner, outer) },
		"one by one":    func(o *observing) { o.send(inner); o.settle(); o.send(outer) },
		"outside first": func(o *observing) { o.send(outer); o.settle(); o.send(inner) },
		"inside alone":  func(o *observing) { o.send(outer); o.settle(); o.send(inner); o.settle() },
	} {
		o := openObserving(t)
		send(o)
		o.send(toolSpan("a", 5, named), toolSpan("b", 1, named))
		o.settle()
		if s := o.look("shop", strings.Repeat("a", 32)); len(s.Steps) != 2 {
			t.Errorf("%s: %d steps", name, len(s.Steps))
		}
	}
}

func TestSpansWaitThroughARestart(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("a", 1), toolSpan("a", 2), modelSpan("a", 0))
	path := pathOf(o.Store)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	o.Store = openWith(t, options(path, o.clock))
	o.again()
	o.settle()
	if s := o.look("shop", strings.Repeat("a", 32)); len(s.Steps) != 2 {
		t.Errorf("%d steps are left of 2", len(s.Steps))
	}
	if done := o.send(toolSpan("a", 1)); done.Duplicates != 1 {
		t.Errorf("%+v", done)
	}
}

func TestEraseTakesObservedSpans(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("a", 1), rootSpan("a", 2))
	o.settle()
	o.send(toolSpan("b", 1)) // this span waits
	if _, err := o.Erase(t.Context(), ann, "shop"); err != nil {
		t.Fatal(err)
	}
	o.settle()
	if got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT count(*) FROM spans UNION ALL SELECT count(*) FROM observed UNION ALL SELECT count(*) FROM steps
		UNION ALL SELECT count(*) FROM runs`); got != "0\n0\n0\n0" {
		t.Errorf("left are %q", got)
	}
}

// TestNothingPlantedIsKept: canaries in every attribute appear nowhere in the
// files, neither in attributes that must never be kept, nor as secrets in those
// that are.
func TestNothingPlantedIsKept(t *testing.T) {
	t.Parallel()
	const token = "sk-proj-" + "Zq3vT7mK9pLw2XcR5nBd8HsJ4fGy6AeU"
	for _, content := range []observed.Content{observed.Hash, observed.None, observed.Keep} {
		o := openObserving(t)
		planted := func(s *observed.Span) {
			s.Run, s.RootAgent, s.Agent, s.Service, s.Call, s.Name, s.Error = token, token, token, token, token, token, token
			s.Args, s.Result = ckpt.JSON(`{"q":"`+token+` CANARY-IN-CONTENT"}`), ckpt.JSON(`"`+token+` CANARY-IN-CONTENT"`)
		}
		_, err := o.Observe(t.Context(), ann, []observed.Span{toolSpan("a", 1, planted), modelSpan("a", 2, planted), rootSpan("a", 3, planted)}, content)
		if err != nil {
			t.Fatal(err)
		}
		o.settle()
		for _, name := range []string{"", "-wal"} {
			bytesOf, err := os.ReadFile(pathOf(o.Store) + name)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(bytesOf, []byte(token)) {
				t.Errorf("%s: the file%s holds the token", content, name)
			}
			if content != observed.Keep && bytes.Contains(bytesOf, []byte("CANARY")) {
				t.Errorf("%s: the file%s holds content", content, name)
			}
		}
	}
}

// TestPrintsAreKeyed: equal calls have different prints in two databases, and
// the same print in one database.
func TestPrintsAreKeyed(t *testing.T) {
	t.Parallel()
	said := func(s *observed.Span) { s.Args, s.Result = ckpt.JSON(`{"q":1}`), ckpt.JSON(`"nothing"`) }
	var prints []string
	for range 2 {
		o := openObserving(t)
		for n := range 12 {
			o.send(toolSpan("a", n, said))
		}
		o.settle()
		prints = append(prints, sqlite3(t, "-readonly", pathOf(o.Store), `SELECT DISTINCT sig || res FROM steps`))
		if s := o.look("shop", strings.Repeat("a", 32)); !slices.ContainsFunc(s.Findings, func(f string) bool { return strings.HasPrefix(f, "repeat") }) {
			t.Errorf("twelve equal calls are %q", s.Findings)
		}
	}
	if len(prints[0]) != 64 || len(prints[1]) != 64 || prints[0] == prints[1] {
		t.Errorf("the prints are %q", prints)
	}
}

func TestObservedRunsTravel(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("a", 1), rootSpan("a", 2))
	o.settle()
	var export bytes.Buffer
	if err := o.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: []string{"shop"}}, &export); err != nil {
		t.Fatal(err)
	}
	to := openObserving(t)
	if _, err := to.Import(t.Context(), ann, ckpt.ImportRequest{}, &export); err != nil {
		t.Fatal(err)
	}
	to.again()
	if s := to.look("shop", strings.Repeat("a", 32)); s.Run.Source != ckpt.SourceOTLP || s.Run.Status != ckpt.RunCompleted || len(s.Steps) != 1 {
		t.Errorf("%+v", s.Run)
	}
}

// TestRulesThatSeeNothingAreNamed: a report names the rules that have no input,
// so that their silence does not look like health.
func TestRulesThatSeeNothingAreNamed(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	said := func(s *observed.Span) { s.Args, s.Result = ckpt.JSON(`{"q":1}`), ckpt.JSON(`"nothing"`) }
	o.send(toolSpan("a", 1, said), toolSpan("b", 1))
	o.settle()
	for run, blind := range map[string]bool{"a": false, "b": true} {
		report, err := o.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "shop", Run: strings.Repeat(run, 32)})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(report.Unseen, "repeat") != blind || slices.Contains(report.Unseen, "stale") != blind ||
			!slices.Contains(report.Unseen, "goal_changed") || slices.Contains(report.Unseen, "error_streak") {
			t.Errorf("%s: %q", run, report.Unseen)
		}
		for _, rule := range report.Unseen {
			if policy := ckpt.DefaultPolicy(); !slices.ContainsFunc(drift.New().Rules(&policy), func(r observer.Rule) bool { return r.Rule == rule }) {
				t.Errorf("there is no rule %s", rule)
			}
		}
	}
	// A rule that has found something sees, although only successful calls show that results are sent.
	for n := range 6 {
		o.send(toolSpan("c", n, failing, func(s *observed.Span) { s.Args = ckpt.JSON(`{"q":1}`) }))
	}
	o.settle()
	report, err := o.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "shop", Run: strings.Repeat("c", 32)})
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(report.Findings, func(f ckpt.Finding) bool { return f.Rule == "repeat" })
	if !found || slices.Contains(report.Unseen, "repeat") || !slices.Contains(report.Unseen, "cycle") || !slices.Contains(report.Unseen, "stale") {
		t.Errorf("it has found a repeat: %v; unseen are %q", found, report.Unseen)
	}
}

// TestPartialRunsSaySo: the numbers of a run that was sent incompletely are
// marked as lower bounds.
func TestPartialRunsSaySo(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	p := ckpt.DefaultPolicy()
	p.Budget.Tokens = 100
	if _, err := o.SetPolicy(t.Context(), ann, "shop", p); err != nil {
		t.Fatal(err)
	}
	o.send(modelSpan("a", 1, func(s *observed.Span) { s.Partial = true }), modelSpan("a", 2))
	o.settle()
	report, err := o.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "shop", Run: strings.Repeat("a", 32)})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) == 0 || report.Findings[0].Rule != drift.RuleBudget || !strings.Contains(report.Findings[0].Message, "at least") {
		t.Errorf("%+v", report.Findings)
	}
	if s := o.look("shop", strings.Repeat("a", 32)); !s.Run.Partial || s.Run.StepsEnded != 0 {
		t.Errorf("%+v", s.Run)
	}
}

// TestTooManyLiveRunsEndEarly: an owner has a limit of live runs. Those beyond
// it end early, and lose nothing.
func TestTooManyLiveRunsEndEarly(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	for n := range 1010 {
		span := toolSpan("a", 1)
		span.Trace = fmt.Sprintf("%032x", n+1)
		o.send(span)
	}
	o.settle()
	o.again()
	if got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT count(*), sum(status = 'running'), (SELECT count(*) FROM steps) FROM runs`); got != "1010|1000|1010" {
		t.Errorf("runs, live ones and steps are %s", got)
	}
}

func TestSpansCountForTheQuota(t *testing.T) {
	t.Parallel()
	o := openObserving(t, func(o *db.Options) { o.MaxOwnerBytes = 200 << 10 })
	var err error
	n := 0
	for ; n < 5000 && err == nil; n++ {
		_, err = o.Observe(t.Context(), ann, []observed.Span{toolSpan("a", n)}, observed.Hash)
	}
	if ckpt.CodeOf(err) != ckpt.CodeQuota {
		t.Fatalf("after %d spans: %v", n, err)
	}
	if _, err := o.Observe(t.Context(), bob, []observed.Span{toolSpan("a", 1)}, observed.Hash); err != nil {
		t.Errorf("another owner: %v", err)
	}
	o.settle()
}

func TestTokens(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	ctx := t.Context()
	token, r := ckpt.NewToken("laptop")
	made, first, err := o.PutToken(ctx, ann, r)
	if err != nil || !first || made.Owner != ann.Owner || made.Note != "laptop" {
		t.Fatal(made, first, err)
	}
	if _, first, err := o.PutToken(ctx, ann, r); err != nil || first {
		t.Errorf("the same again: %v, %v", first, err)
	}
	_, other := ckpt.NewToken("x")
	other.ID = r.ID
	if _, _, err := o.PutToken(ctx, ann, other); ckpt.CodeOf(err) != ckpt.CodeConflict {
		t.Errorf("another token of that id: %v", err)
	}
	if _, _, err := o.PutToken(ctx, bob, other); err != nil {
		t.Errorf("another owner's token of that id: %v", err)
	}
	wrong := token[:len(token)-1] + "x"
	same, _ := ckpt.NewToken("")
	for text, want := range map[string]string{token: ann.Owner, wrong: "", same: "", "": "", r.ID: "", "ckpt-" + r.ID + "-" + r.SHA256: ""} {
		owner, err := o.OwnerOfToken(ctx, text)
		if owner != want || (want == "") != (ckpt.CodeOf(err) == ckpt.CodeDenied) {
			t.Errorf("%q names %q, %v", text, owner, err)
		}
	}
	if _, err := o.RevokeToken(ctx, ann, r.ID); err != nil {
		t.Fatal(err)
	}
	if owner, err := o.OwnerOfToken(ctx, token); owner != "" || ckpt.CodeOf(err) != ckpt.CodeDenied {
		t.Errorf("a revoked token names %q, %v", owner, err)
	}
	secret := token[strings.LastIndex(token, "-")+1:]
	for _, name := range []string{"", "-wal"} {
		file, err := os.ReadFile(pathOf(o.Store) + name)
		if err != nil || bytes.Contains(file, []byte(secret)) {
			t.Errorf("the file%s holds the token, or %v", name, err)
		}
	}
	if got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT action, outcome FROM audit_log WHERE action LIKE '%token' ORDER BY n`); got !=
		"put_token|done\nput_token|conflict\nput_token|done\nrevoke_token|done" {
		t.Errorf("the audit log has %q", got)
	}
	for n := range ckpt.MaxTokens + 1 {
		_, r := ckpt.NewToken("")
		if _, _, err := o.PutToken(ctx, ann, r); n == ckpt.MaxTokens && ckpt.CodeOf(err) != ckpt.CodeQuota || n < ckpt.MaxTokens && err != nil {
			t.Errorf("token %d: %v", n, err)
		}
	}
	page, err := o.Tokens(ctx, ann, ckpt.TokenFilter{Limit: 60})
	if err != nil || len(page.Tokens) != 60 {
		t.Fatal(err)
	}
	rest, err := o.Tokens(ctx, ann, ckpt.TokenFilter{Limit: 60, Before: string(page.Next)})
	if err != nil || len(rest.Tokens) != ckpt.MaxTokens+1-60 || rest.Next != "" {
		t.Errorf("%d tokens are left, %v", len(rest.Tokens), err)
	}
}

// TestManySpansOfOneCallAreNotComparedWithEachOther: four times as many spans
// with the same call id need about four times as much. It counts what is
// allocated, because that does not depend on the machine.
func TestManySpansOfOneCallAreNotComparedWithEachOther(t *testing.T) {
	expect.OneThread(t)
	named := func(s *observed.Span) { s.Call = "call_0" }
	many := func(from, to int) (list []observed.Span) {
		for n := from; n < to; n++ {
			list = append(list, toolSpan("a", n, named))
		}
		return list
	}
	allocations := func() uint64 {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return now.Mallocs
	}
	cost := func(n int) (sum uint64) {
		o := openObserving(t)
		for _, spans := range [][]observed.Span{many(0, n), many(n, 2*n)} { // the second are also compared with the steps of the first
			o.send(spans...)
			before := allocations()
			o.settle()
			sum += allocations() - before
		}
		if s := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT count(*) FROM steps`); s != fmt.Sprint(2*n) {
			t.Fatalf("%s steps of %d spans", s, 2*n)
		}
		return sum
	}
	few, more := cost(250), cost(1000)
	if more > 8*few {
		t.Errorf("%d allocations for 500 spans, %d for 2000", few, more)
	}
}

// TestTraceWithManySpans: a trace with more spans than one transaction takes
// becomes one run, in the order in which the spans ended.
func TestTraceWithManySpans(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	o := openObserving(t)
	const many = 5000
	var spans []observed.Span
	for n := range many {
		spans = append(spans, toolSpan("a", many-n, func(s *observed.Span) { s.ID = fmt.Sprintf("%016x", n+1) }))
	}
	o.send(spans...)
	o.settle()
	got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT count(*), sum(stretch > 0) FROM steps;
		SELECT group_concat(json_extract(detail, '$.steps')) FROM audit_log WHERE action = 'observe_run'`)
	if got != "5000|5000\n4096,904" {
		t.Errorf("steps, those in order, and steps of each transaction are %s", got)
	}
}

// TestDamagedSpanHoldsUpNobody: a span that cannot be read is dropped, and the
// audit log says so. The other spans of its trace, other users' spans, and the
// ends of runs do not wait for it.
func TestDamagedSpanHoldsUpNobody(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("c", 1))
	o.settle()
	o.send(toolSpan("a", 1), toolSpan("a", 2), toolSpan("a", 3), toolSpan("b", 1))
	path := pathOf(o.Store)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, path, `UPDATE spans SET said = '{' WHERE trace LIKE 'a%' AND span LIKE '%2'`)
	sql(t, path, `UPDATE spans SET said = '{"began":7}' WHERE trace LIKE 'a%' AND span LIKE '%3'`)
	o.Store = openWith(t, options(path, o.clock))
	o.again()
	o.clock.add(31 * time.Minute)
	o.again()
	for _, trace := range []string{"a", "b", "c"} {
		if s := o.look("shop", strings.Repeat(trace, 32)); len(s.Steps) != 1 || trace == "c" && s.Run.Status != ckpt.RunCompleted {
			t.Errorf("%s: %d steps, %s", trace, len(s.Steps), s.Run.Status)
		}
	}
	got := sqlite3(t, "-readonly", path, `SELECT count(*) FROM spans WHERE run_id IS NULL;
		SELECT outcome, json_extract(detail, '$.spans') FROM audit_log WHERE action = 'drop_spans'`)
	if got != "0\ncorrupt|2" {
		t.Errorf("spans that wait, and what was dropped: %s", got)
	}
}

// TestDamagedObservedRunHoldsUpNobody: the spans of a run whose row is damaged
// wait. Other runs get their spans, and end. Another user's agent can be erased
// and given away, the one with the damage cannot.
func TestDamagedObservedRunHoldsUpNobody(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	o.send(toolSpan("b", 1), toolSpan("d", 1))
	for _, agent := range []string{"y", "z"} {
		save(t, o.Store, bob, agent, ckpt.KindRoutine, `{}`)
	}
	o.settle()
	path := pathOf(o.Store)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, path, `UPDATE runs SET segment_at = 'x' WHERE name LIKE 'b%'`)
	o.Store = openWith(t, options(path, o.clock))
	o.send(toolSpan("a", 1), toolSpan("b", 2), toolSpan("c", 1), toolSpan("d", 2))
	again := func() {
		t.Helper()
		if err := o.Settle(t.Context()); err == nil {
			t.Error("the damage is not reported")
		}
	}
	o.clock.add(11 * time.Second)
	again()
	if _, err := o.Erase(t.Context(), bob, "y"); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, _, err := o.Chown(t.Context(), root, ckpt.ChownRequest{From: bob.Caller.Owner, To: "uid:7"}, ""); err != nil {
		t.Errorf("another owner: %v", err)
	}
	_, err := o.Erase(t.Context(), ann, "shop")
	wantCode(t, err, ckpt.CodeInternal)
	o.clock.add(31 * time.Minute)
	again()
	got := sqlite3(t, "-readonly", path, `SELECT group_concat(substr(r.name, 1, 1) || r.status || (SELECT count(*) FROM steps s WHERE s.run_id = r.id), ' ')
		FROM (SELECT * FROM runs WHERE source IS NOT NULL ORDER BY name) r; SELECT count(*) FROM spans WHERE run_id IS NULL`)
	if got != "acompleted1 brunning1 ccompleted1 dcompleted2\n1" {
		t.Errorf("runs and spans that wait: %s", got)
	}
}

// TestLongTurnStaysInItsConversation: the spans of a turn are settled before
// the root of its trace has come. They become part of the run that its
// conversation has already, although only the root names the agent.
func TestLongTurnStaysInItsConversation(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	talk := func(s *observed.Span) { s.Run = "talk" }
	planner := func(s *observed.Span) { s.RootAgent, s.Agent = "planner", "planner" }
	o.send(toolSpan("a", 1, talk), rootSpan("a", 2, talk, planner))
	o.settle()
	o.send(toolSpan("b", 3, talk))
	o.settle()
	o.send(toolSpan("b", 4, talk), rootSpan("b", 5, talk, planner))
	o.settle()
	if s := o.look("planner", "talk"); len(s.Steps) != 3 {
		t.Errorf("%d steps", len(s.Steps))
	}
	if got := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT count(*) FROM runs`); got != "1" {
		t.Errorf("%s runs", got)
	}
	o.clock.add(31 * time.Minute)
	o.again()
	o.send(toolSpan("c", 6, talk)) // of another agent, long after
	o.settle()
	if s := o.look("planner", "talk"); len(s.Steps) != 3 || s.Run.Status != ckpt.RunCompleted {
		t.Errorf("the run that has ended has %d steps and is %s", len(s.Steps), s.Run.Status)
	}
}
