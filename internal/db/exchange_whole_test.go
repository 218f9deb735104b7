package db_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// exportOf returns the export of an agent, or of all of ann's.
func exportOf(t testing.TB, s *db.Store, agents ...string) string {
	t.Helper()
	var out bytes.Buffer
	must(t, s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: agents}, &out))
	return out.String()
}

// copyOf imports into another store on the same machine, with the same processes and the same clock.
func copyOf(t testing.TB, c *clock, p *processes, text string) (*db.Store, *ckpt.ImportReport) {
	t.Helper()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
	s := openWith(t, o)
	report, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	must(t, err)
	return s, report
}

// planOf returns a dry-run resume plan as text, without the stored size of a checkpoint, which differs between
// databases.
func planOf(t testing.TB, s *db.Store, agent, run string) string {
	t.Helper()
	plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: agent, Run: run, DryRun: true})
	must(t, err)
	text, err := json.MarshalIndent(plan, "", " ")
	must(t, err)
	if plan.Checkpoint != nil {
		text = append(text, plan.Checkpoint.State...)
	}
	return regexp.MustCompile(`"stored_size": \d+`).ReplaceAllString(string(text), "")
}

// TestImportKeepsWhatAPersonMustDecide: if the owner of a run died in an operation, a person must decide, here and
// wherever the run is imported.
func TestImportKeepsWhatAPersonMustDecide(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	start(t, s, 7)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	_, _, err := s.BeginOperation(t.Context(), as(7), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay the invoice", State: ckpt.JSON(`{"n":2}`)})
	must(t, err)
	p.kill(7)
	wantVerdict(t, claim(t, s, 8), ckpt.VerdictAsk)
	text := exportOf(t, s, "a")
	other, report := copyOf(t, c, p, text)
	plan := claim(t, other, 9, func(r *ckpt.ResumeRequest) { r.DryRun = true })
	wantVerdict(t, plan, ckpt.VerdictAsk)
	if plan.Prompt == nil || len(plan.UncertainOperations) != 1 || plan.UncertainOperations[0].Key != "pay" {
		t.Errorf("the plan: %+v", plan)
	}
	if diff := cmp.Diff(planOf(t, s, "a", "main"), planOf(t, other, "a", "main")); diff != "" {
		t.Error(diff)
	}
	if again := rowsIn(t, exportOf(t, other, "a")); again != rowsIn(t, text) {
		t.Errorf("the export of the import is another:\n%s", cmp.Diff(rowsIn(t, text), again))
	}
	if report.Runs != 1 || report.Imported != 2 || len(report.Uncertain) != 0 {
		t.Errorf("the report: %+v", report)
	}
	sound(t, pathOf(other))
}

// TestImportOfALivingOwnersRunAsks: the export does not contain what the run's owner does afterwards, so the copy
// continues only if a person decides so.
func TestImportOfALivingOwnersRunAsks(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	start(t, s, 7)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	text := exportOf(t, s, "a")
	p.kill(7) // the machine with the copy has no such process
	other, report := copyOf(t, c, p, text)
	wantVerdict(t, claim(t, other, 8), ckpt.VerdictAsk)
	if len(report.Uncertain) != 1 || !strings.HasPrefix(report.Uncertain[0].Reason, "anything that this run did after it was exported") {
		t.Errorf("the report: %+v", report)
	}
}

// TestImportOfDamageAsks: if a checkpoint of a run could not be read, it is not safe to continue the run from an
// older one.
func TestImportOfDamageAsks(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	bad := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":2}`)
	must(t, s.ExecForTest(`UPDATE checkpoints SET body = x'7b7d202020202020' WHERE id = ?`, bad.ID))
	other, report := copyOf(t, c, p, exportOf(t, s, "a"))
	wantVerdict(t, claim(t, other, 8), ckpt.VerdictAsk)
	if len(report.Uncertain) != 1 || report.Imported != 1 {
		t.Errorf("the report: %+v", report)
	}
	sound(t, pathOf(other))
}

// TestImportJoinsNoHistories: an existing run with another history is left alone, and so is everything else in the
// file.
func TestImportJoinsNoHistories(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	text := exportOf(t, s, "a")
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":2}`)
	newer := exportOf(t, s, "a")
	other, _ := copyOf(t, c, p, text)
	_, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(newer))
	wantCode(t, err, ckpt.CodeConflict)
	save(t, other, ann, "a", ckpt.KindRoutine, `{"n":3}`) // the run continues there
	report, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	must(t, err)
	if report.RunsPresent != 1 || report.Runs != 0 || report.Present != 1 {
		t.Errorf("the same file again: %+v", report)
	}
	c.add(time.Second)
	stranger, _ := open(t)
	save(t, stranger, ann, "a", ckpt.KindRoutine, `{"x":1}`)
	must(t, stranger.ExecForTest(`UPDATE runs SET started_at = '2026-01-01T00:00:00.000Z'`))
	before := exportOf(t, stranger, "a")
	_, err = stranger.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	wantCode(t, err, ckpt.CodeConflict)
	if rowsIn(t, exportOf(t, stranger, "a")) != rowsIn(t, before) {
		t.Error("the refused import changed something")
	}
}

// TestImportSaysWhatItCannotAdd: a file that knows more of an existing run than its checkpoints is refused, under
// each name, and nothing is changed. The file that knows less is not.
func TestImportSaysWhatItCannotAdd(t *testing.T) {
	t.Parallel()
	nothing := func(*testing.T, *db.Store) {}
	step := func(key string, status ckpt.StepStatus) func(*testing.T, *db.Store) {
		return func(t *testing.T, s *db.Store) {
			_, _, err := s.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: key, Name: "deploy", Status: status})
			must(t, err)
		}
	}
	begin := func(t *testing.T, s *db.Store) {
		_, _, err := s.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`{"n":2}`)})
		must(t, err)
	}
	ask := func(t *testing.T, s *db.Store) {
		_, _, err := s.AskQuestion(t.Context(), ann, ckpt.QuestionRequest{Agent: "a", Run: "main", Question: "Deploy?"})
		must(t, err)
	}
	find := func(t *testing.T, s *db.Store) {
		_, _, err := s.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Rule: "loop", Severity: ckpt.SeverityWarn, Message: "it loops"})
		must(t, err)
	}
	end := func(status ckpt.RunStatus) func(*testing.T, *db.Store) {
		return func(t *testing.T, s *db.Store) {
			_, _, err := s.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: status})
			must(t, err)
		}
	}
	for _, test := range []struct {
		name        string
		before, act func(*testing.T, *db.Store)
		more        string
	}{
		{"a step", nothing, step("d", ckpt.StepSucceeded), `step d, attempt 1 \(succeeded\)`},
		{"another step", step("c", ckpt.StepSucceeded), step("d", ckpt.StepStarted), `step d, attempt 1 \(started\)`},
		{"the end of a step", step("d", ckpt.StepStarted), func(t *testing.T, s *db.Store) {
			_, _, err := s.FinishStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "d"})
			must(t, err)
		}, `step d, attempt 1 \(succeeded\)`},
		{"another attempt of a step", step("d", ckpt.StepFailed), step("d", ckpt.StepStarted), `step d, attempt 2 \(started\)`},
		{"the outcome of an operation", begin, func(t *testing.T, s *db.Store) {
			_, _, err := s.EndOperation(t.Context(), ann, mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationFailed})
			must(t, err)
		}, `operation pay, attempt 1 \(failed\)`},
		{"a prompt", nothing, ask, `prompt \S+ \(open\)`},
		{"the answer to a prompt", ask, func(t *testing.T, s *db.Store) {
			page, err := s.Prompts(t.Context(), ann, ckpt.PromptFilter{})
			must(t, err)
			_, _, err = s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: page.Prompts[0].ID, Choice: "yes"})
			must(t, err)
		}, `prompt \S+ \(closed\)`},
		{"a finding", nothing, find, `finding \S+ \(open\)`},
		{"the dismissal of a finding", find, func(t *testing.T, s *db.Store) {
			page, err := s.Findings(t.Context(), ann, survey.FindingsQuery{Agent: "a"})
			must(t, err)
			_, _, err = s.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: page.Findings[0].ID})
			must(t, err)
		}, `finding \S+ \(dismissed\)`},
		{"an event", nothing, func(t *testing.T, s *db.Store) {
			_, _, err := s.Append(t.Context(), ann, mainRun, []ckpt.NewEvent{{Type: "x"}}, "")
			must(t, err)
		}, `event 1, and here it has 0`},
		{"the end of the run", nothing, end(ckpt.RunCompleted), `its end: it is completed, and here it is running`},
		{"the end of a segment", nothing, end(ckpt.RunSuspended), `its end: it is suspended, and here it is running`},
		{"the end after the end of a segment", end(ckpt.RunSuspended), end(ckpt.RunCompleted), `its end: it is completed, and here it is suspended`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, c, p := openRuns(t)
			save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
			test.before(t, s)
			older := exportOf(t, s, "a")
			c.add(time.Second)
			test.act(t, s)
			newer := exportOf(t, s, "a")
			other, _ := copyOf(t, c, p, older)
			present(t, other, "", older)
			refuses(t, other, "", newer, test.more)
			_, err := other.Import(t.Context(), ann, ckpt.ImportRequest{Agent: "b"}, strings.NewReader(older))
			must(t, err)
			present(t, other, "b", older)
			refuses(t, other, "b", newer, test.more)
			_, err = other.Erase(t.Context(), ann, "a")
			must(t, err)
			present(t, other, "b", older) // its ids differ from those of the file
			refuses(t, other, "b", newer, test.more)
			knowing, _ := copyOf(t, c, p, newer)
			present(t, knowing, "", newer)
			present(t, knowing, "", older)
		})
	}
}

// present imports a file whose runs are all here already.
func present(t *testing.T, s *db.Store, agent, text string) {
	t.Helper()
	before := rowsIn(t, exportOf(t, s))
	report, err := s.Import(t.Context(), ann, ckpt.ImportRequest{Agent: agent}, strings.NewReader(text))
	must(t, err)
	if report.RunsPresent != 1 || report.Runs != 0 || report.Imported != 0 {
		t.Errorf("the report: %+v", report)
	}
	if diff := cmp.Diff(before, rowsIn(t, exportOf(t, s))); diff != "" {
		t.Errorf("the import changed something:\n%s", diff)
	}
}

// refuses imports a file that has more of a run than the store.
func refuses(t *testing.T, s *db.Store, agent, text, more string) {
	t.Helper()
	before := rowsIn(t, exportOf(t, s))
	_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{Agent: agent}, strings.NewReader(text))
	wantCode(t, err, ckpt.CodeConflict)
	if err != nil && !regexp.MustCompile(`has more of run main of agent \S+ than this database \(`+more+`\)`).MatchString(err.Error()) {
		t.Errorf("the message: %v", err)
	}
	if diff := cmp.Diff(before, rowsIn(t, exportOf(t, s))); diff != "" {
		t.Errorf("the refused import changed something:\n%s", diff)
	}
}

// TestImportOfARunThatWentOnHere: what the run here forgot or did since is no reason to refuse the file that it came
// from.
func TestImportOfARunThatWentOnHere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		on   func(*testing.T, *db.Store)
	}{
		{"its step is done again", func(t *testing.T, s *db.Store) {
			_, _, err := s.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "d", Name: "deploy"})
			must(t, err)
		}},
		{"it is resumed", func(t *testing.T, s *db.Store) { claim(t, s, 8) }},
		{"it is begun anew", func(t *testing.T, s *db.Store) {
			_, _, err := s.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted})
			must(t, err)
			start(t, s, 8)
		}},
		{"its checkpoint is deleted", func(t *testing.T, s *db.Store) {
			list, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a"})
			must(t, err)
			_, err = s.Delete(t.Context(), ann, list.Checkpoints[0].ID)
			must(t, err)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, c, p := openRuns(t)
			id := putFiles(t, s, ann, "a", "", nil, folder{"f": "1"})
			saveWith(t, s, ann, "a", `{"n":1}`, id)
			_, _, err := s.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "d", Name: "deploy", Status: ckpt.StepFailed})
			must(t, err)
			_, _, err = s.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunSuspended})
			must(t, err)
			text := exportOf(t, s, "a")
			other, _ := copyOf(t, c, p, text)
			c.add(time.Second)
			test.on(t, other)
			present(t, other, "", text)
		})
	}
	t.Run("it is to begin with nothing", func(t *testing.T) {
		t.Parallel()
		s, c, p := openRuns(t)
		start(t, s, 7)
		_, _, err := s.BeginOperation(t.Context(), as(7), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay the invoice"})
		must(t, err)
		p.kill(7)
		plan := claim(t, s, 8)
		wantVerdict(t, plan, ckpt.VerdictAsk)
		text := exportOf(t, s, "a")
		other, _ := copyOf(t, c, p, text)
		c.add(time.Second)
		_, _, err = other.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceRepeat})
		must(t, err)
		present(t, other, "", text)
	})
}

// TestImportOfFilesThatAreNotHere: a file without files has nothing more than a run with files, but a file with files
// has more than a run that came without them.
func TestImportOfFilesThatAreNotHere(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	id := putFiles(t, s, ann, "a", "", nil, folder{"f": "1"})
	saveWith(t, s, ann, "a", `{"n":1}`, id)
	text := exportOf(t, s, "a")
	var bare bytes.Buffer
	must(t, s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: []string{"a"}, NoFiles: true}, &bare))
	whole, _ := copyOf(t, c, p, text)
	present(t, whole, "", bare.String())
	present(t, whole, "", text)
	without, _ := copyOf(t, c, p, bare.String())
	present(t, without, "", bare.String())
	refuses(t, without, "", text, `the files of checkpoint \S+`)
	_, err := without.Import(t.Context(), ann, ckpt.ImportRequest{Agent: "b"}, &bare)
	must(t, err)
	refuses(t, without, "b", text, `the files of checkpoint \S+`)
}

// TestImportThatBreaksOffBeginsAnew: if an import fails in its transaction, nothing of it stays, and repeating the
// import brings everything.
func TestImportThatBreaksOffBeginsAnew(t *testing.T) {
	t.Parallel()
	t.Run("a run that goes on", func(t *testing.T) { t.Parallel(); breaksOff(t, false) })
	t.Run("a run that has ended", func(t *testing.T) { t.Parallel(); breaksOff(t, true) })
	t.Run("an observed run", func(t *testing.T) { t.Parallel(); breaksOffObserved(t, false) })
	t.Run("an observed run that has ended", func(t *testing.T) { t.Parallel(); breaksOffObserved(t, true) })
}

func breaksOffObserved(t *testing.T, ended bool) {
	t.Helper()
	o := openObserving(t)
	spans := make([]observed.Span, 1500)
	for i := range spans {
		spans[i] = toolSpan("a", i)
	}
	o.send(spans...)
	o.settle()
	if ended {
		o.clock.add(31 * time.Minute)
		o.again()
	}
	text := exportOf(t, o.Store, "shop")
	other := openWith(t, options(filepath.Join(t.TempDir(), "ckpt.db"), o.clock))
	must(t, other.ExecForTest(`CREATE TRIGGER test_fault BEFORE INSERT ON steps WHEN (SELECT count(*) FROM steps) = 1200
		BEGIN SELECT RAISE(ABORT, 'a fault of the test'); END`))
	if _, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text)); err == nil {
		t.Fatal("the import did not break off")
	}
	must(t, other.ExecForTest(`DROP TRIGGER test_fault`))
	_, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	must(t, err)
	if rowsIn(t, exportOf(t, other, "shop")) != rowsIn(t, text) {
		t.Error("the second import is not whole")
	}
}

func breaksOff(t *testing.T, ended bool) {
	t.Helper()
	s, c, p := openRuns(t)
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 0
	_, err := s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
	for i := range 100 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	if ended {
		_, _, err := s.EndRun(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
		must(t, err)
	}
	text := exportOf(t, s, "a")
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
	other := openWith(t, o)
	// A trigger simulates the fault: one of the last checkpoints is refused.
	must(t, other.ExecForTest(`CREATE TRIGGER test_fault BEFORE INSERT ON checkpoints WHEN NEW.seq = 90 BEGIN SELECT RAISE(ABORT, 'a fault of the test'); END`))
	if _, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text)); err == nil {
		t.Fatal("the import did not break off")
	}
	must(t, other.ExecForTest(`DROP TRIGGER test_fault`))
	if agents, err := other.Agents(t.Context(), ann, ckpt.AgentFilter{}); err != nil || len(agents.Agents) != 0 {
		t.Errorf("left are %v, %v", agents, err)
	}
	_, err = other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	must(t, err)
	if rowsIn(t, exportOf(t, other, "a")) != rowsIn(t, text) {
		t.Error("the second import is not whole")
	}
}

// TestExportOfOneRunAndOfAll exports a run by itself, and all agents in one file.
func TestExportOfOneRunAndOfAll(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	for _, agent := range []string{"a", "b"} {
		for _, run := range []string{"r1", "r2"} {
			r := request(agent, ckpt.KindRoutine, `{"of":"`+agent+run+`"}`)
			r.Run = run
			_, err := s.Save(t.Context(), ann, r)
			must(t, err)
		}
	}
	var one bytes.Buffer
	must(t, s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: []string{"a"}, Run: "r2"}, &one))
	other, report := copyOf(t, c, p, one.String())
	if report.Runs != 1 || planOf(t, s, "a", "r2") != planOf(t, other, "a", "r2") {
		t.Errorf("the report: %+v", report)
	}
	all := exportOf(t, s)
	other, report = copyOf(t, c, p, all)
	if report.Runs != 4 || !slices.Equal(report.Agents, []string{"a", "b"}) || rowsIn(t, exportOf(t, other)) != rowsIn(t, all) {
		t.Errorf("the report: %+v", report)
	}
	_, err := other.Import(t.Context(), ann, ckpt.ImportRequest{Agent: "c"}, strings.NewReader(all))
	wantCode(t, err, ckpt.CodeInvalid)
	err = s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: []string{"a"}, Run: "none"}, &one)
	wantCode(t, err, ckpt.CodeNotFound)
	err = s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Run: "r1"}, &one)
	wantCode(t, err, ckpt.CodeInvalid)
}

// past is a random history, made through the calls that agents and operators make.
type past struct {
	*saver
	rand *rand.Rand
	c    *clock
	p    *processes
	pid  int
	ids  []string
	step int
}

func (h *past) pick(list ...string) string { return list[h.rand.IntN(len(list))] }

// do makes one random call. A refusal is acceptable.
func (h *past) do() {
	h.step++
	h.c.add(time.Duration(h.rand.IntN(5000)) * time.Millisecond)
	agent, run := h.pick("a", "a", "b"), h.pick("main", "r1", "r2")
	ref := ckpt.RunRef{Agent: agent, Run: run}
	ctx, sc := h.t.Context(), as(h.pid)
	state := fmt.Sprintf(`{"n":%d,"goal":"g","list":[%s0]}`, h.step, strings.Repeat("1, ", h.rand.IntN(9)*h.rand.IntN(400)))
	switch h.rand.IntN(22) {
	case 0:
		h.pid++
		beat := ckpt.Duration(time.Duration(h.rand.IntN(2)) * time.Minute)
		_, _, _ = h.StartRun(ctx, as(h.pid), ckpt.RunRequest{Agent: agent, Run: run, PID: h.pid, Workflow: "w", Goal: "find <it> & \"keep\" it\nlong", ExternalSession: "x1",
			HeartbeatTimeout: &beat, Labels: ckpt.Labels{"k": "v\u2028"}})
	case 1:
		h.p.kill(h.pid - h.rand.IntN(3))
	case 2:
		h.pid++
		_, _, _ = h.Resume(ctx, as(h.pid), ckpt.ResumeRequest{Agent: agent, Run: run, PID: h.pid, Force: h.rand.IntN(2) == 0})
	case 3, 4, 5, 6, 7:
		r := request(agent, ckpt.Kinds[h.rand.IntN(3)], state)
		r.Run, r.Labels, r.Metadata = run, ckpt.Labels{"i": fmt.Sprint(h.step)}, []byte(`{ "i": 1.0,`+"\n"+`"t":"<&>" }`)
		if h.rand.IntN(4) == 0 {
			r.Program = &ckpt.Program{Source: "x = 1\ny <&> 2", Executed: 5}
		}
		if h.rand.IntN(6) == 0 {
			r.ContentType, r.State = "application/octet-stream", []byte("\x00\xff\n"+state)
		}
		if c, err := h.Save(ctx, sc, r); err == nil {
			h.ids = append(h.ids, c.ID)
		}
	case 8, 9:
		_, _, _ = h.BeginStep(ctx, sc, ref, ckpt.StepRequest{Key: h.pick("s1", "s2", "s3", "s4"), Name: "tool", Args: ckpt.JSON(h.pick(`{"a":1}`, "null", "[ 1,\n 2 ]"))})
	case 10:
		cost := h.rand.Float64()
		_, _, _ = h.FinishStep(ctx, sc, ref, ckpt.StepRequest{Key: h.pick("s1", "s2", "s3", "s4"), Status: ckpt.StepStatus(h.pick("succeeded", "failed")), Result: ckpt.JSON(`"r"`), Error: ckpt.Ref(h.pick("", "it failed")), CostUSD: &cost})
	case 11:
		r := ckpt.OperationRequest{Key: h.pick("o1", "o2"), Name: "deploy"}
		if h.rand.IntN(2) == 0 {
			r.State = ckpt.JSON(state)
		}
		_, _, _ = h.BeginOperation(ctx, sc, ref, r)
	case 12:
		key := h.pick("o1", "o2")
		if h.rand.IntN(2) == 0 {
			_, _, _ = h.ResolveOperation(ctx, sc, ref, ckpt.OperationResolution{Key: key, Choice: ckpt.PromptChoice(h.pick("it_did", "it_did_not", "repeat")), Reason: "seen"})
		} else {
			_, _, _ = h.EndOperation(ctx, sc, ref, ckpt.OperationEnd{Key: key, Status: ckpt.OperationStatus(h.pick("succeeded", "failed", "uncertain")), Error: "odd"})
		}
	case 13:
		_, _, _ = h.Append(ctx, sc, ref, []ckpt.NewEvent{{Type: "t", Payload: ckpt.JSON(`{"x": 1}`)}, {Type: "u"}}, "")
	case 14:
		r := ckpt.FindingRequest{Run: run, Rule: "mine", Severity: ckpt.Severity(h.pick("info", "warn", "critical")), Message: "m", Evidence: ckpt.JSON(`{"e":1}`)}
		_, _, _ = h.PostFinding(ctx, sc, agent, r)
	case 15:
		if d, err := h.Drift(ctx, ann, ckpt.DriftFilter{Agent: agent, Run: run, All: true}); err == nil && len(d.Findings) > 0 {
			_, _, _ = h.Dismiss(ctx, ann, ckpt.DismissRequest{ID: d.Findings[h.rand.IntN(len(d.Findings))].ID, Reason: "no"})
		}
	case 16:
		if len(h.ids) > 0 {
			_, _, _ = h.Restore(ctx, sc, ckpt.RestoreRequest{Agent: agent, Checkpoint: h.ids[h.rand.IntN(len(h.ids))], Reason: "back"})
		}
	case 17:
		progress := h.rand.Float64()
		_, _ = h.Beat(ctx, sc, ref, ckpt.Heartbeat{Progress: &progress})
	case 18:
		_, _, _ = h.EndRun(ctx, sc, ref, ckpt.EndRequest{Status: ckpt.RunStatus(h.pick("suspended", "awaiting_continuation", "interrupted", "completed", "failed")),
			ContinuationPrompt: "go on <here>", Result: ckpt.JSON(`{"r": 1}`), Error: ckpt.Ref(h.pick("", "e"))})
	case 19:
		if page, err := h.Prompts(ctx, ann, ckpt.PromptFilter{Open: true}); err == nil && len(page.Prompts) > 0 {
			_, _, _ = h.AnswerPrompt(ctx, ann, ckpt.PromptAnswer{ID: page.Prompts[0].ID, Choice: ckpt.PromptChoice(h.pick("resume", "reinitialize", "abandon"))})
		}
	case 20:
		if len(h.ids) > 0 {
			id := h.ids[h.rand.IntN(len(h.ids))]
			pinned := h.rand.IntN(2) == 0
			_, _ = h.Patch(ctx, ann, id, ckpt.CheckpointPatch{Pinned: &pinned, Labels: &ckpt.Labels{"patched": "yes"}})
			_, _, _ = h.StartRun(ctx, sc, ckpt.RunRequest{Agent: agent, Run: fmt.Sprint("fork", h.step), ForkFrom: ckpt.Ref(id)})
		}
	case 21:
		th := ckpt.GraphThread{Thread: h.pick("t1", "t2"), NS: h.pick("", "n|s")}
		id := fmt.Sprint("c", h.step)
		_, _ = h.GraphPut(ctx, ann, &ckpt.GraphPut{Agent: "a", GraphThread: th, Checkpoint: checkpointOf(id, `{"x":1}`), Metadata: ckpt.JSON(`{"step":1}`), Values: jsonValues(channels{"x": state})})
		_, _ = h.GraphPutWrites(ctx, ann, &ckpt.GraphPutWrites{Agent: "a", GraphThread: th, Checkpoint: id, Writes: []ckpt.GraphWrite{
			{Task: "t", Idx: 0, Path: "p", Channel: "x", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(state)}}}})
	}
}

// TestExportsOfRandomHistories brings random histories to another store. Each run has the same plan there, its
// export is the same text, and verify finds nothing. Runs whose owners were alive during the export are never safe.
func TestExportsOfRandomHistories(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	seeds := moreOf(6, 48)
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			c, p := newClock(), &processes{dead: map[int]bool{}}
			o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
			o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
			h := &past{saver: &saver{t, openWith(t, o), ann, "a"}, rand: rand.New(rand.NewPCG(seed, 7)), c: c, p: p, pid: 10}
			for range 150 {
				h.do()
			}
			alive := seed%4 == 0
			if !alive {
				for pid := range h.pid + 1 {
					p.kill(pid)
				}
				must(t, h.ExecForTest(`UPDATE runs SET heartbeat_timeout_ms = 0 WHERE status = 'running' AND pid IS NULL`))
			}
			text := exportOf(t, h.Store)
			other, report := copyOf(t, c, p, text)
			page, err := h.Runs(t.Context(), ann, ckpt.RunFilter{Lives: true, Limit: ckpt.MaxLimit})
			must(t, err)
			if len(page.Runs) != report.Runs {
				t.Errorf("%d runs came, there were %d", report.Runs, len(page.Runs))
			}
			for _, run := range page.Runs {
				if ckpt.BaseRun(run.Run) != run.Run { // nobody resumes an earlier life
					continue
				}
				here, there := planOf(t, h.Store, run.Agent, run.Run), planOf(t, other, run.Agent, run.Run)
				if slices.ContainsFunc(report.Uncertain, func(u ckpt.UncertainRun) bool { return u.Agent == run.Agent && u.Run == run.Run }) {
					if !alive {
						t.Errorf("run %s of %s became uncertain", run.Run, run.Agent)
					}
					if !strings.Contains(there, `"verdict": "ask"`) && !strings.Contains(there, `"verdict": "unsafe"`) {
						t.Errorf("run %s of %s is safe:\n%s", run.Run, run.Agent, there)
					}
					continue
				}
				if diff := cmp.Diff(here, there); diff != "" {
					t.Errorf("run %s of %s:\n%s", run.Run, run.Agent, diff)
				}
			}
			was, again := rowsIn(t, text), rowsIn(t, exportOf(t, other))
			if len(report.Uncertain) == 0 && again != was {
				t.Errorf("the export of the import is another:\n%s", cmp.Diff(strings.Split(was, "\n"), strings.Split(again, "\n")))
			}
			if len(report.Pruned) > 0 {
				t.Errorf("pruned: %v", report.Pruned)
			}
			sound(t, pathOf(other))
			// The first import makes a renamed copy next to the original, and the second one repeats it.
			if len(report.Agents) == 1 {
				for range 2 {
					_, err := h.Import(t.Context(), ann, ckpt.ImportRequest{Agent: "copy"}, strings.NewReader(text))
					must(t, err)
				}
				sound(t, pathOf(h.Store))
			}
		})
	}
}
