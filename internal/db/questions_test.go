package db_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// asker is a store with a run that asks.
type asker struct {
	testing.TB
	*db.Store
	clock *clock
	run   string
}

func newAsker(t *testing.T) *asker {
	t.Helper()
	c := newClock()
	p := &processes{dead: map[int]bool{}}
	o := options(t.TempDir()+"/ckpt.db", c)
	o.Resume, o.Processes, o.Fits = resume.Make, p, drift.Fits
	return &asker{TB: t, Store: openWith(t, o), clock: c, run: "main"}
}

func (a *asker) ask(r ckpt.QuestionRequest) (*ckpt.Prompt, bool) {
	a.Helper()
	r.Agent, r.Run = "a", a.run
	p, again, err := a.AskQuestion(a.Context(), ann, r)
	if err != nil {
		a.Fatal(err)
	}
	return p, again
}

func (a *asker) answer(p *ckpt.Prompt, choice ckpt.PromptChoice, data string) (*ckpt.Prompt, bool, error) {
	return a.AnswerPrompt(a.Context(), ann, ckpt.PromptAnswer{ID: p.ID, Choice: choice, Data: ckpt.JSON(data)})
}

func (a *asker) answered(p *ckpt.Prompt, choice ckpt.PromptChoice) {
	a.Helper()
	if _, _, err := a.answer(p, choice, ""); err != nil {
		a.Fatal(err)
	}
}

func (a *asker) resume(force bool) *ckpt.Plan {
	a.Helper()
	plan, _, err := a.Resume(a.Context(), ann, ckpt.ResumeRequest{Agent: "a", Run: a.run, PID: 11, Force: force})
	if err != nil || !plan.Claimed {
		a.Fatalf("%+v %v", plan, err)
	}
	return plan
}

func same(t *testing.T, got, want *ckpt.Prompt) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAQuestionIsAnsweredOnce: a question is answered once. The same answer
// again is replayed, even if its data has other white space. A different answer
// is a conflict, and data that breaks the schema is refused.
func TestAQuestionIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	schema := ckpt.JSON(`{"type":"object","required":["env"],"properties":{"env":{"enum":["prod","test"]}}}`)
	p, again := a.ask(ckpt.QuestionRequest{Key: "k", Question: "Deploy?", Reason: "all tests pass", Choices: ckpt.Choices{"approve", "reject"}, Schema: schema})
	expect.Equal(t, "again", again, false)
	expect.Equal(t, "status", p.Status, ckpt.PromptOpen)
	for _, wrong := range []struct {
		choice ckpt.PromptChoice
		data   string
		code   ckpt.Code
	}{
		{"perhaps", `{"env":"prod"}`, ckpt.CodeInvalid}, {"approve", `{"env":"moon"}`, ckpt.CodeSchemaMismatch}, {"approve", ``, ckpt.CodeInvalid}, {"approve", `{`, ckpt.CodeInvalid},
	} {
		_, _, err := a.answer(p, wrong.choice, wrong.data)
		expect.Equal(t, "code of "+string(wrong.choice)+wrong.data, ckpt.CodeOf(err), wrong.code)
	}
	first, replayed, err := a.answer(p, "approve", `{"env":"prod"}`)
	expect.OK(t, err)
	expect.Equal(t, "replayed", replayed, false)
	expect.Equal(t, "answered", first.Status, ckpt.PromptAnswered)
	second, replayed, err := a.answer(p, "approve", "{ \"env\" : \"prod\" }")
	expect.OK(t, err)
	expect.Equal(t, "replayed", replayed, true)
	same(t, second, first)
	_, _, err = a.answer(p, "reject", `{"env":"prod"}`)
	expect.Code(t, err, ckpt.CodeConflict)

	shown, again := a.ask(ckpt.QuestionRequest{Key: "k", Question: "Deploy?", Choices: ckpt.Choices{"approve", "reject"}, Schema: schema})
	expect.Equal(t, "asked again", again, true)
	same(t, shown, first)
	_, _, err = a.AskQuestion(t.Context(), ann, ckpt.QuestionRequest{Agent: "a", Key: "k", Question: "Delete?"})
	expect.Code(t, err, ckpt.CodeIdempotencyMismatch)
	_, err = a.Prompt(t.Context(), bob, p.ID)
	expect.Code(t, err, ckpt.CodeNotFound)
}

// TestQuestionsAreAudited: the audit log has the question and the answer with
// their texts, until the agent is erased.
func TestQuestionsAreAudited(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	p, _ := a.ask(ckpt.QuestionRequest{Question: "Which house?"})
	if _, _, err := a.answer(p, "", `"the blue one"`); err != nil {
		t.Fatal(err)
	}
	rows := func() (n int) {
		page, err := a.Audit(t.Context(), ann, ckpt.AuditFilter{Agent: "a"})
		expect.OK(t, err)
		for _, row := range page.Audit {
			switch detail := string(row.Detail); {
			case row.Action == "ask" && row.Subject == ckpt.Ref(p.ID) && strings.Contains(detail, "Which house?"),
				row.Action == "answer_prompt" && row.Subject == ckpt.Ref(p.ID) && strings.Contains(detail, "the blue one"):
				n++
			}
		}
		return n
	}
	expect.Equal(t, "rows with what was typed", rows(), 2)
	if _, err := a.Erase(t.Context(), ann, "a"); err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "rows with what was typed, after an erasure", rows(), 0)
}

// TestQuestionsWithoutAKey: after a crash, a question without a key is the same
// question. It is a new question as soon as a checkpoint was saved that
// contains the answer, so an old approval never answers a new question.
func TestQuestionsWithoutAKey(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	save(t, a.Store, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	question := ckpt.QuestionRequest{Question: "Deploy?"}
	p, _ := a.ask(question)
	save(t, a.Store, ann, "a", ckpt.KindRoutine, `{"n":1,"waits":true}`) // an autosave in the meantime
	a.answered(p, "yes")
	plan := a.resume(true) // the process died while it waited
	if len(plan.Questions) != 1 || plan.Questions[0].ID != p.ID || plan.Questions[0].Choice != "yes" {
		t.Fatalf("the plan does not list the answer: %+v", plan.Questions)
	}
	same, again := a.ask(question)
	expect.Equal(t, "after the crash", same.ID, p.ID)
	expect.Equal(t, "again", again, true)

	question.After = p.ID // the same words, a second time in this process
	other, _ := a.ask(question)
	expect.Equal(t, "open", other.Status, ckpt.PromptOpen)
	a.answered(other, "no")
	question.After = ""
	plan = a.resume(true)
	expect.Equal(t, "questions", len(plan.Questions), 2)
	if p1, _ := a.ask(question); p1.ID != p.ID {
		t.Error("what runs once more from the checkpoint gets the second answer first")
	}

	save(t, a.Store, ann, "a", ckpt.KindRoutine, `{"n":2}`)
	plan = a.resume(true)
	expect.Equal(t, "questions that the checkpoint knows", len(plan.Questions), 0)
	fresh, again := a.ask(question)
	expect.Equal(t, "again", again, false)
	expect.Equal(t, "a new question", fresh.Status, ckpt.PromptOpen)
}

// TestAnswersAfterTheState: a plan lists the answers that the state to load does not know, although
// the checkpoint with that state is newer, or has a higher number in the run that was forked.
func TestAnswersAfterTheState(t *testing.T) {
	t.Parallel()
	question := ckpt.QuestionRequest{Question: "Deploy?"}
	begin := map[string]func(a *asker){
		"an operation has the same state once more": func(a *asker) {
			save(t, a.Store, ann, "a", ckpt.KindRoutine, `{"n":1}`)
			p, _ := a.ask(question)
			a.answered(p, "yes")
			_, _, err := a.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "o", Name: "o"})
			expect.OK(t, err)
			_, _, err = a.EndOperation(t.Context(), ann, mainRun, ckpt.OperationEnd{Key: "o", Status: ckpt.OperationSucceeded})
			expect.OK(t, err)
		},
		"a fork without a checkpoint of its own": func(a *asker) {
			save(t, a.Store, ann, "a", ckpt.KindRoutine, `{"n":1}`)
			from := save(t, a.Store, ann, "a", ckpt.KindRoutine, `{"n":2}`)
			a.run = "fork"
			_, _, err := a.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "fork", ForkFrom: ckpt.Ref(from.ID)})
			expect.OK(t, err)
			p, _ := a.ask(question)
			a.answered(p, "yes")
		},
	}
	for name, begin := range begin {
		t.Run(name, func(t *testing.T) {
			a := newAsker(t)
			begin(a)
			plan := a.resume(true)
			if plan.Checkpoint == nil || len(plan.Questions) != 1 || plan.Questions[0].Choice != "yes" {
				t.Errorf("the plan does not list the answer: %+v", plan.Questions)
			}
			p, again := a.ask(question)
			expect.Equal(t, "again", again, true)
			expect.Equal(t, "status", p.Status, ckpt.PromptAnswered)
		})
	}
}

func TestAQuestionSuspendsItsRun(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	save(t, a.Store, ann, "a", ckpt.KindRoutine, `1`)
	question := ckpt.QuestionRequest{Key: "k", Question: "Deploy?", Suspend: true}
	p, _ := a.ask(question)
	run, err := a.Store.Run(t.Context(), ann, mainRun)
	expect.OK(t, err)
	expect.Equal(t, "status", run.Status, ckpt.RunSuspended)
	a.ask(question) // again, like a client that lost the answer
	a.answered(p, "yes")
	plan := a.resume(false)
	expect.Equal(t, "verdict", plan.Verdict, ckpt.VerdictResume)
	expect.Equal(t, "answers", len(plan.Questions), 1)
	if p, _ = a.ask(question); p.Choice != "yes" {
		t.Errorf("the answer is %+v", p)
	}
	if run, err = a.Store.Run(t.Context(), ann, mainRun); err != nil || run.Status != ckpt.RunRunning {
		t.Errorf("a question with an answer suspends nothing: %+v %v", run, err)
	}
}

func TestQuestionsExpireAndAreWithdrawn(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	p, _ := a.ask(ckpt.QuestionRequest{Key: "k", Question: "Deploy?", Expires: ckpt.Duration(time.Minute)})
	other, _ := a.ask(ckpt.QuestionRequest{Key: "l", Question: "Deploy?"})
	a.clock.add(time.Minute)
	_, _, err := a.answer(p, "yes", "")
	expect.Code(t, err, ckpt.CodeConflict)
	p, _ = a.ask(ckpt.QuestionRequest{Key: "k", Question: "Deploy?"})
	expect.Equal(t, "status", p.Status, ckpt.PromptExpired)
	page, err := a.Prompts(t.Context(), ann, ckpt.PromptFilter{Open: true})
	if err != nil || len(page.Prompts) != 1 || page.Prompts[0].ID != other.ID {
		t.Errorf("open are %+v %v", page, err)
	}
	changed := a.PromptsChanged()
	if _, _, err := a.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	<-changed
	other, err = a.Prompt(t.Context(), ann, other.ID)
	expect.OK(t, err)
	expect.Equal(t, "after the end of the run", other.Status, ckpt.PromptWithdrawn)
	_, _, err = a.answer(other, "yes", "")
	expect.Code(t, err, ckpt.CodeConflict)

	a.resume(false) // a fresh start: its keys are free again
	fresh, again := a.ask(ckpt.QuestionRequest{Key: "l", Question: "Something else?"})
	expect.Equal(t, "again", again, false)
	expect.Equal(t, "fresh", fresh.Status, ckpt.PromptOpen)
}

// TestQuestionsGoWithTheirRun: a client that waits for an answer learns when
// the run or the agent is removed.
func TestQuestionsGoWithTheirRun(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	for _, remove := range []func() error{
		func() error {
			_, err := a.DeleteRun(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: a.run}, false)
			return err
		},
		func() error { _, err := a.Erase(t.Context(), ann, "a"); return err },
	} {
		a.run += "x"
		p, _ := a.ask(ckpt.QuestionRequest{Question: "?", Suspend: true})
		changed := a.PromptsChanged()
		expect.OK(t, remove())
		<-changed
		_, err := a.Prompt(t.Context(), ann, p.ID)
		expect.Code(t, err, ckpt.CodeNotFound)
	}
}

// TestQuestionsBesideDecisions: the daemon's own prompts and the run's
// questions do not withdraw each other, and an export contains both.
func TestQuestionsBesideDecisions(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	save(t, a.Store, ann, "a", ckpt.KindRoutine, `1`)
	p, _ := a.ask(ckpt.QuestionRequest{Key: "k", Question: "Deploy?", Choices: ckpt.Choices{"yes"}, Expires: ckpt.Duration(time.Hour)})
	if _, _, err := a.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay"}); err != nil {
		t.Fatal(err)
	}
	plan, _, err := a.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a", Force: true})
	if err != nil || plan.Verdict != ckpt.VerdictAsk || plan.Prompt == nil || plan.Prompt.Kind != ckpt.PromptOperation || len(plan.Questions) != 1 {
		t.Fatalf("%+v %v", plan, err)
	}
	_, _, err = a.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: "yes"})
	expect.Code(t, err, ckpt.CodeInvalid)
	changed := a.PromptsChanged()
	if _, _, err = a.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceItDidNot}); err != nil {
		t.Fatal(err)
	}
	wantTold(t, changed)
	a.answered(p, "yes")
	text := exportOf(t, a.Store, "a")
	other := newAsker(t)
	report, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "runs that are not told whole", len(report.Uncertain), 0)
	there, err := other.Prompt(t.Context(), ann, p.ID)
	expect.OK(t, err)
	here, err := a.Prompt(t.Context(), ann, p.ID)
	expect.OK(t, err)
	same(t, there, here)
}

// TestWhoAsksIsWatchedSo: the monitor is told that a run with a progress timeout waits for a person, until the
// question is answered or expires.
func TestWhoAsksIsWatchedSo(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	timeout := ckpt.Duration(time.Minute)
	if _, _, err := a.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", PID: 11, ProgressTimeout: &timeout}); err != nil {
		t.Fatal(err)
	}
	asks := func(want bool) {
		t.Helper()
		runs, err := a.Watched(t.Context(), 0, 10)
		if err != nil || len(runs) != 1 || runs[0].Asks != want {
			t.Errorf("%+v %v", runs, err)
		}
	}
	asks(false)
	p, _ := a.ask(ckpt.QuestionRequest{Question: "Deploy?"})
	asks(true)
	a.answered(p, "yes")
	asks(false)
	a.ask(ckpt.QuestionRequest{Question: "Now?", Expires: ckpt.Duration(time.Minute)})
	asks(true)
	a.clock.add(time.Hour)
	asks(false)
}
