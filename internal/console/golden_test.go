package console

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

var update = flag.Bool("update", false, "write the golden pages anew")

// noon is the time of the made-up runs of the tests.
var noon = ckpt.At(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))

func after(minutes float64) ckpt.Time {
	return ckpt.At(noon.Add(time.Duration(minutes * float64(time.Minute))))
}

func frameForTests() frame {
	f := frame{
		Title: "Overview", Base: "/s/test/", CSRF: "csrf", Live: livePace, Now: after(120), State: draw.Badge{Class: "live", Icon: "live", Word: "ready"}, Host: "host-7",
		Who: "uid:1001", Assets: assets{"/a.css", "/a.js", "/a.svg", "/hot.svg"},
	}
	for _, s := range screens {
		f.Nav = append(f.Nav, navItem{Name: s.name, Href: f.Base + s.path, Key: s.key})
	}
	f.Hot = 5
	return f
}

// adminForTests is the frame of a page for an administrator.
func adminForTests() frame {
	f := frameForTests()
	f.Admin = true
	return f
}

// crashed is a run that lost its owner twice.
func crashed() *survey.Recorder {
	rec := &survey.Recorder{
		Owner: "uid:1001", Agent: "coder", Run: "one", Status: ckpt.RunInterrupted, Epoch: 3, Attempt: 3, At: after(120), Began: noon, Ended: after(116),
		From: noon, To: after(116), Bins: 240, BinMS: 29000,
		Segments: []survey.Segment{
			{Attempt: 1, From: noon, To: after(5), How: "interrupted", PID: 1}, {Attempt: 2, From: after(11), To: after(13), How: "interrupted", PID: 2},
			{Attempt: 3, From: after(112), To: after(116), How: "interrupted", PID: 3},
		},
		Whole: survey.Whole{BinMS: 58000, Steps: []survey.StepBin{{I: 0, Count: 4}, {I: 119, Count: 2, Failed: 1}}},
		Sums:  survey.Sums{Steps: 9, Failed: 1, Checkpoints: 4, InputTokens: 600_000, OutputTokens: 92_000, CostUSD: 2.49, WorkedMS: 11 * 60_000, StoredBytes: 56_100},
	}
	for i, at := range []float64{1, 3, 12, 113} {
		rec.Steps.Marks = append(rec.Steps.Marks, survey.StepMark{Key: fmt.Sprintf("s%d", i), Name: "bash", Status: ckpt.StepSucceeded, StartedAt: after(at), EndedAt: after(at + .5)})
		rec.Checkpoints.Marks = append(rec.Checkpoints.Marks, survey.CheckpointMark{
			ID: fmt.Sprintf("01a20670-2c8b-7833-9dce-19bbbfe4703%d", i), Seq: int64(i + 1), Kind: ckpt.Kinds[i%3], CreatedAt: after(at + .6), Size: int64(1000 * (i + 1)), Pinned: i == 1,
		})
	}
	rec.Steps.Marks[3].Status = ckpt.StepFailed
	rec.Operations.Marks = []survey.OperationMark{{Key: "op", Name: "push branch", Status: ckpt.OperationUncertain, StartedAt: after(115)}}
	rec.Findings.Marks = []survey.FindingMark{{ID: "f", At: after(4), Rule: "latency_drift", Severity: ckpt.SeverityWarn, Message: "slower", Closed: "resumed"}}
	return rec
}

func runForTests() *ckpt.Run {
	progress := .61
	return &ckpt.Run{
		Agent: "coder", Owner: "uid:1001", Run: "one", Status: ckpt.RunInterrupted, Epoch: 3, Attempt: 3, PID: 8190, Goal: "Fix the cart", Workflow: "fix",
		Labels: ckpt.Labels{"repo": "shop"}, Progress: &progress, StartedAt: noon, UpdatedAt: after(116),
	}
}

func drawn(t testing.TB, name string, view any) []byte {
	t.Helper()
	p, err := newPages()
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.draw(name, view)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func inUTC(t testing.TB) {
	old := draw.Zone
	draw.Zone = time.UTC
	t.Cleanup(func() { draw.Zone = old })
}

func overviewForTests() *survey.Overview {
	return &survey.Overview{
		At: after(120), From: noon, To: after(120), BinMS: 60_000,
		Needs: []survey.Need{
			{What: survey.NeedOperation, Key: "a", Count: 1, Owner: "uid:1001", Agent: "coder", Run: "one", Since: after(115), Text: "push branch", Why: "The owner died in it.", Operation: "op", Status: ckpt.RunInterrupted, Epoch: 3},
			{What: survey.NeedPrompt, Key: "b", Count: 1, Owner: "uid:1001", Agent: "bot", Run: "v5", Since: after(23), Text: "Which hotel?", Prompt: "p", PromptKind: ckpt.PromptQuestion},
			{What: survey.NeedFindings, Key: "c", Count: 4, Since: after(1)},
			{What: survey.NeedLostRun, Key: "d", Count: 1, Owner: "uid:1001", Agent: "bot", Run: "v6", Since: after(30), Status: ckpt.RunInterrupted, MayGoOn: true, Why: "A person has answered how it goes on: it may go on; nobody runs it.", Command: &ckpt.Command{Argv: []string{"python3", "bot.py"}, Folder: "/srv"}},
			{What: survey.NeedPrompt, Key: "e", Count: 1, Owner: "uid:1001", Agent: "bot", Run: "v7", Since: after(23), Text: "Go on?", Why: "drift", Prompt: "q", PromptKind: ckpt.PromptDecision, WaitingPID: 77},
		},
		Runs: []survey.RunLine{{
			Owner: "uid:1001", Agent: "coder", Run: "one", Goal: "Fix the cart", Status: ckpt.RunInterrupted, SavedAt: after(114), Steps: 9, CostUSD: 2.49, Findings: 1,
			Worst: ckpt.SeverityCritical, Segments: crashed().Segments, Bins: []survey.RunBin{{I: 1, Steps: 4}, {I: 113, Steps: 2, Failed: 2, Operations: 1, Findings: 1, Open: 1, Worst: ckpt.SeverityCritical}},
		}, {Owner: "uid:1001", Agent: "bot", Run: "done", Status: ckpt.RunCompleted, SavedAt: after(100)}},
		Counts: survey.Counts{Agents: 2, Runs: 2},
	}
}

func runViewForTests(rec *survey.Recorder, report *ckpt.DriftReport, q url.Values) *runView {
	v := viewRun(frameForTests(), runForTests(), rec, report, q)
	v.drawRecorder(rec, rec.Checkpoints.Marks[1].ID, q)
	plan := &ckpt.Plan{Verdict: "ask", UncertainOperations: []ckpt.Operation{{Key: "op", Name: "push branch", StartedAt: after(115)}}}
	v.Plan = viewPlan(runForTests(), rec, plan, false, "/s/test/")
	return v
}

// TestGoldenPages compares each screen, drawn from made-up answers, with its
// golden file.
func TestGoldenPages(t *testing.T) {
	inUTC(t)
	list := &ckpt.RunPage{Runs: []ckpt.Run{*runForTests()}}
	findings := &survey.Findings{Findings: []ckpt.Finding{
		{ID: "f", Owner: "uid:1001", Agent: "coder", Run: "one", At: after(110), Rule: "budget", Severity: ckpt.SeverityCritical, Message: "all is used"},
		{ID: "g", Owner: "uid:1001", Agent: "coder", Run: "one", At: after(60), Rule: "error_rate", Severity: ckpt.SeverityWarn, Message: "too many", Closed: "dismissed", DismissedAt: after(61)},
	}}
	for name, c := range map[string]struct {
		page string
		view any
	}{
		"door":      {"door", doorView{}},
		"overview":  {"overview", viewOverview(frameForTests(), overviewForTests(), false)},
		"read_only": {"overview", viewOverview(frameForTests(), overviewForTests(), true)},
		"run":       {"run", runViewForTests(crashed(), &ckpt.DriftReport{}, url.Values{})},
		"run_table": {"run", runViewForTests(crashed(), &ckpt.DriftReport{}, url.Values{"as": {"table"}})},
		"state":     {"state", stateForTests()},
		"steps":     {"transcript", transcriptForTests(url.Values{})},
		"steps_bad": {"transcript", transcriptForTests(url.Values{"hide": {"ok"}})},
		"runs":      {"runs", viewRuns(frameForTests(), list, &ckpt.AgentPage{}, url.Values{"group": {"label:repo"}})},
		"tree":      {"tree", viewTree(frameForTests(), "uid:1001", branchesForTests(), forecastForTests())},
		"storage":   {"storage", viewStorage(frameForTests(), statusForTests(), agentsForTests(nil), policiesForTests(), nil)},
		"storage_2": {"storage", viewStorage(frameForTests(), statusForTests(), agentsForTests(new(int64(64_000))), policiesForTests(), forecastForTests())},
		"audit":     {"audit", viewAudit(adminForTests(), statusForTests(), auditForTests(), 0, 7, url.Values{})},
		"system":    {"system", viewSystem(frameForTests(), statusForTests(), checksForTests(), settingsForTests())},
		"system_2":  {"system", viewSystem(frameForTests(), statusForTests(), nil, nil)},
		"fleet":     {"fleet", fleetForTests()},
		"find":      {"find", findForTests()},
		"whatif":    {"whatif", whatIfForTests()},
		"drift":     {"drift", viewDrift(frameForTests(), findings, after(120), 2*time.Hour, "last two hours", url.Values{})},
	} {
		t.Run(name, func(t *testing.T) {
			got := drawn(t, c.page, c.view)
			path := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the page has changed; if it should, run go test ./internal/console -update and look at the difference of %s", path)
			}
			for _, bad := range []string{" style=", "<style", "javascript:", " onclick", "ZgotmplZ"} {
				if bytes.Contains(got, []byte(bad)) {
					t.Errorf("the page has %q", bad)
				}
			}
		})
	}
}

var openTag = regexp.MustCompile(`<[a-zA-Z]`)

// TestBudgets draws the largest answers that the daemon gives, and counts bytes
// and elements.
func TestBudgets(t *testing.T) {
	rec := crashed()
	rec.Steps, rec.Checkpoints, rec.Findings, rec.Operations = survey.StepLane{}, survey.CheckpointLane{}, survey.FindingLane{}, survey.OperationLane{}
	for i := range laneBins {
		at := after(float64(i) * 116 / laneBins)
		rec.Steps.Marks = append(rec.Steps.Marks, survey.StepMark{Key: fmt.Sprint(i), Status: ckpt.StepSucceeded, StartedAt: at, EndedAt: at})
		rec.Operations.Marks = append(rec.Operations.Marks, survey.OperationMark{Key: fmt.Sprint(i), Name: "write", Status: ckpt.OperationSucceeded, StartedAt: at, EndedAt: at})
		rec.Findings.Marks = append(rec.Findings.Marks, survey.FindingMark{ID: fmt.Sprint(i), At: at, Rule: "rule", Severity: ckpt.SeverityWarn})
		rec.Checkpoints.Marks = append(rec.Checkpoints.Marks, survey.CheckpointMark{ID: fmt.Sprintf("01a20670-2c8b-7833-9dce-19bbbfe4%04d", i), Seq: int64(i), Kind: ckpt.KindRoutine, CreatedAt: at, Size: int64(i)})
	}
	o := overviewForTests()
	for i := range survey.DefaultRuns {
		line := o.Runs[0]
		line.Run, line.Bins = fmt.Sprint("run-", i), nil
		for b := range 12 {
			line.Bins = append(line.Bins, survey.RunBin{I: b * 10, Steps: 3})
		}
		o.Runs = append(o.Runs, line)
	}
	page := &survey.Transcript{Earlier: true, Later: true}
	for i := range survey.DefaultSteps {
		page.Steps = append(page.Steps, survey.TranscriptStep{Key: fmt.Sprint(i), Name: "bash", Args: strings.Repeat("a", 1000), ArgsSize: 2000, Result: strings.Repeat("b", 1000), ResultSize: 1000,
			Status: ckpt.StepFailed, Error: strings.Repeat("c", 1000), ErrorSize: 3000, StartedAt: after(1)})
	}
	for i := range survey.MaxHeard {
		page.Events = append(page.Events, survey.HeardEvent{Seq: int64(i), Type: "said", Payload: strings.Repeat("d", 1000), Size: 5000})
	}
	for name, text := range map[string][]byte{
		"transcript": drawn(t, "transcript", viewTranscript(frameForTests(), runForTests(), page, survey.TranscriptQuery{}, nil, url.Values{})),
		"run":        drawn(t, "run", runViewForTests(rec, &ckpt.DriftReport{}, url.Values{})),
		"overview":   drawn(t, "overview", viewOverview(frameForTests(), o, false)),
	} {
		nodes, zipped := len(openTag.FindAll(text, -1)), gzipped(text)
		t.Logf("%s: %d nodes, %d bytes, %d gzipped", name, nodes, len(text), zipped)
		if most := 3000; nodes > most {
			t.Errorf("%s has %d nodes, more than %d", name, nodes, most)
		}
		if zipped > 60_000 {
			t.Errorf("%s has %d bytes gzipped", name, zipped)
		}
	}
	for _, name := range []string{"console.css", "console.js"} {
		text, err := assetFiles.ReadFile("asset/" + name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, %d gzipped, %d lines", name, len(text), gzipped(text), bytes.Count(text, []byte("\n")))
		if gzipped(text) > 12_000 || bytes.Count(text, []byte("\n")) > 600 {
			t.Errorf("%s is too large", name)
		}
	}
}

func gzipped(text []byte) int {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Len()
}

// TestTreeHasABudget: the tree of a state with very many values has a limited
// number of nodes.
func TestTreeHasABudget(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"list": [`)
	for i := range 20_000 {
		fmt.Fprintf(&b, `{"n": %d, "t": "x"},`, i)
	}
	b.WriteString(`0]`)
	for i := range 20_000 {
		fmt.Fprintf(&b, `, "k%d": {"a": [1, 2, {"b": %d}]}`, i, i)
	}
	b.WriteString(`}`)
	root, ok := treeOf([]byte(b.String()), nil, nil)
	if !ok {
		t.Fatal("the state cannot be read")
	}
	if n := countNodes(&root); n > mostTreeNodes*2 {
		t.Errorf("the tree has %d nodes", n)
	}
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	if root, ok := treeOf([]byte(deep), nil, nil); ok && countNodes(&root) > mostTreeNodes*2 {
		t.Error("a deep state makes a deep tree")
	}
}

func countNodes(n *node) int {
	sum := 1
	for i := range n.Kids {
		sum += countNodes(&n.Kids[i])
	}
	return sum
}

// FuzzStatesStayText draws hostile texts in every place of a run's page.
func FuzzStatesStayText(f *testing.F) {
	for _, s := range []string{
		`</script><img src=x onerror=alert(1)>`, `"><svg onload=x>`, "\u202egnp.exe", "\x1b[31m", `{{.}}`, `' onmouseover='x`, "<!--", "]]>", "\u2028", "&lt;b&gt;", "javascript:alert(1)",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rec, run := crashed(), runForTests()
		rec.Steps.Marks[0].Key, rec.Operations.Marks[0].Name, rec.Findings.Marks[0].Message, rec.Findings.Marks[0].Rule = s, s, s, s
		run.Goal, run.Workflow, run.Labels = ckpt.Ref(s), ckpt.Ref(s), ckpt.Labels{"k": s}
		report := &ckpt.DriftReport{}
		report.Findings = []ckpt.Finding{{ID: "f", Rule: s, Message: s}}
		v := viewRun(frameForTests(), run, rec, report, url.Values{})
		v.drawRecorder(rec, "", url.Values{})
		quoted, _ := json.Marshal(s)
		state := []byte(`{` + string(quoted) + `: ` + string(quoted) + `, "list": [` + string(quoted) + `]}`)
		root, ok := treeOf(state, nil, nil)
		if !ok {
			t.Skip()
		}
		groups, _, _ := diffOf(&ckpt.Diff{Patch: []byte(`[{"op": "add", "path": "/a", "value": ` + string(quoted) + `}]`)}, nil)
		cp := &ckpt.Checkpoint{ID: "x", Kind: ckpt.KindRoutine, Step: ckpt.Ref(s), Labels: ckpt.Labels{"k": s}}
		v.Picked = &picked{Checkpoint: cp, Tree: &root, Groups: groups, NoDiff: s, Against: []option{{Value: s, Label: s}}}
		text := drawn(t, "run", v)
		page := &survey.Transcript{Steps: []survey.TranscriptStep{{Key: s, Name: s, Args: string(quoted), ArgsSize: 900, Error: s, ErrorSize: 900}}}
		page.Events, page.Causes = []survey.HeardEvent{{Type: s, Payload: string(quoted), Size: 900}}, []survey.StepCause{{Name: s, Error: s, Key: s}}
		text = append(text, drawn(t, "transcript", viewTranscript(frameForTests(), run, page, survey.TranscriptQuery{}, nil, url.Values{}))...)
		if bytes.ContainsFunc(text, hidden) {
			t.Errorf("the page has a character that nobody sees")
		}
		for _, bad := range []string{"<img", "<script>", "onerror=alert(1)>", "<svg onload"} {
			if bytes.Contains(text, []byte(bad)) {
				t.Errorf("the page has %q", bad)
			}
		}
	})
}

// TestADifferenceHasABudget: a state with very many new members has a limited number of groups.
func TestADifferenceHasABudget(t *testing.T) {
	var ops []string
	for i := range 50_000 {
		ops = append(ops, fmt.Sprintf(`{"op":"add","path":"/k%d","value":1}`, i))
	}
	groups, changed, more := diffOf(&ckpt.Diff{Patch: []byte("[" + strings.Join(ops, ",") + "]")}, nil)
	if len(groups) > mostDiffLines || len(changed) != 50_000 || more != 50_000-mostDiffLines {
		t.Errorf("%d groups, %d changed, %d more", len(groups), len(changed), more)
	}
}

// TestATableSaysWhatItLeavesOut draws a recorder with more marks than a table has rows, and with marks that are only
// counted.
func TestATableSaysWhatItLeavesOut(t *testing.T) {
	rec := crashed()
	for i := range 500 {
		rec.Steps.Marks = append(rec.Steps.Marks, survey.StepMark{Key: "step", StartedAt: after(float64(i % 100))})
	}
	rec.Operations.Bins = []survey.OperationBin{{I: 200, Count: 7, Uncertain: 2}}
	rec.Findings.Bins = []survey.FindingBin{{I: 201, Count: 9, Open: 4, Worst: ckpt.SeverityCritical}}
	table := tableOf(rec, "run")
	if len(table.Rows) != mostRows || table.Earlier == "" {
		t.Errorf("%d rows, and %q are left out", len(table.Rows), table.Earlier)
	}
	for what, how := range map[string]string{"operations, together": "0 failed, 2 uncertain", "findings, together": "4 open, the worst critical"} {
		if !slices.ContainsFunc(table.Rows, func(r recRow) bool { return r.What == what && r.How == how }) {
			t.Errorf("the table has no %s: %+v", what, table.Rows[:10])
		}
	}
	page := drawn(t, "run", runViewForTests(rec, &ckpt.DriftReport{}, url.Values{"as": {"table"}}))
	if !strings.Contains(string(page), "Not shown: "+table.Earlier) {
		t.Error("the page does not say what it leaves out")
	}
}

// TestRunsOfOtherHostsAreNotHere: an ordinary user does not see the hosts of the fleet.
func TestRunsOfOtherHostsAreNotHere(t *testing.T) {
	v := &fleetView{frame: frameForTests()}
	v.addRuns(&fleet.Runs{Runs: []fleet.RunShown{{DB: "db-1", This: true, Agent: "a", Run: "one"}, {DB: "db-2", Agent: "a", Run: "one"}}}, nil, url.Values{})
	if v.Runs[0].Here == "" || v.Runs[1].Here != "" {
		t.Errorf("the links are %q and %q", v.Runs[0].Here, v.Runs[1].Here)
	}
}
