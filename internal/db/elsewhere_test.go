package db_test

import (
	"fmt"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// TestNobodyWritesToARunOfAnotherHost: once another host owns a run, every
// write to it is fenced, with an epoch and without one. The run can still be
// read and forked.
func TestNobodyWritesToARunOfAnotherHost(t *testing.T) {
	t.Parallel()
	opt := options(t.TempDir()+"/ckpt.db", newClock())
	opt.Resume = resume.Make
	s := openWith(t, opt)
	defer s.Close()
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	run, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a"})
	must(t, err)
	var saved *ckpt.Saved
	for i := range 5 { // after that the run is saved the fast way
		saved = save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	other := request("a", ckpt.KindRoutine, "0")
	other.Run = "other"
	_, err = s.Save(t.Context(), ann, other)
	must(t, err)
	_, _, err = s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "pay", Name: "pay"})
	must(t, err)
	_, _, err = s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "mail", Name: "mail"})
	must(t, err)
	_, _, err = s.EndOperation(t.Context(), ann, ref, ckpt.OperationEnd{Key: "mail", Status: ckpt.OperationUncertain})
	must(t, err)
	prompt, _, err := s.AskQuestion(t.Context(), ann, ckpt.QuestionRequest{Agent: "a", Question: "Go on?"})
	must(t, err)
	finding, _, err := s.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Rule: "own", Severity: ckpt.SeverityWarn, Message: "odd"})
	must(t, err)
	var id int64
	must(t, s.RO.GetContext(t.Context(), &id, `SELECT id FROM runs WHERE name = 'main'`))
	s.SetElsewhere(map[int64]ledger.Elsewhere{id: {Host: "build-2", Term: 3}})

	writes := map[string]func(ref ckpt.RunRef) error{
		"a routine save": func(ref ckpt.RunRef) error {
			r := request("a", ckpt.KindRoutine, "9")
			r.Epoch = ref.Epoch
			_, err := s.Save(t.Context(), ann, r)
			return err
		},
		"a recovery save": func(ref ckpt.RunRef) error {
			r := request("a", ckpt.KindRecovery, "9")
			r.Epoch = ref.Epoch
			_, err := s.Save(t.Context(), ann, r)
			return err
		},
		"a step": func(ref ckpt.RunRef) error {
			_, _, err := s.BeginStep(t.Context(), ann, ref, ckpt.StepRequest{Key: "k", Name: "n"})
			return err
		},
		"an operation": func(ref ckpt.RunRef) error {
			_, _, err := s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "again", Name: "n"})
			return err
		},
		"the end of an operation": func(ref ckpt.RunRef) error {
			_, _, err := s.EndOperation(t.Context(), ann, ref, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationSucceeded})
			return err
		},
		"an event": func(ref ckpt.RunRef) error {
			_, _, err := s.Append(t.Context(), ann, ref, []ckpt.NewEvent{{Type: "x", Payload: ckpt.JSON(`1`)}}, "")
			return err
		},
		"a heartbeat": func(ref ckpt.RunRef) error {
			_, err := s.Beat(t.Context(), ann, ref, ckpt.Heartbeat{Epoch: ref.Epoch})
			return err
		},
		"the end of the run": func(ref ckpt.RunRef) error {
			_, _, err := s.EndRun(t.Context(), ann, ref, ckpt.EndRequest{Epoch: ref.Epoch, Status: ckpt.RunCompleted})
			return err
		},
		"a start": func(ckpt.RunRef) error {
			_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a"})
			return err
		},
		"a resume": func(ckpt.RunRef) error {
			_, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a"})
			return err
		},
		"a forced resume": func(ckpt.RunRef) error {
			_, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a", Force: true})
			return err
		},
		"how an operation ended": func(ckpt.RunRef) error {
			_, _, err := s.ResolveOperation(t.Context(), ann, ref, ckpt.OperationResolution{Key: "mail", Choice: ckpt.ChoiceItDidNot})
			return err
		},
		"a question": func(ref ckpt.RunRef) error {
			_, _, err := s.AskQuestion(t.Context(), ann, ckpt.QuestionRequest{Agent: "a", Question: "And now?", Epoch: ref.Epoch})
			return err
		},
		"a finding": func(ref ckpt.RunRef) error {
			_, _, err := s.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Rule: "own", Severity: ckpt.SeverityWarn, Message: "new", Epoch: ref.Epoch})
			return err
		},
		"an answer": func(ckpt.RunRef) error {
			_, _, err := s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: prompt.ID, Choice: "yes"})
			return err
		},
		"a dismissal": func(ckpt.RunRef) error {
			_, _, err := s.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: finding.ID, Reason: "it is fine"})
			return err
		},
		"a restore": func(ckpt.RunRef) error {
			_, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: saved.ID})
			return err
		},
	}
	count := func() (n int) {
		t.Helper()
		must(t, s.RO.GetContext(t.Context(), &n, `SELECT count(*) FROM checkpoints WHERE run_id = ?`, id))
		return n
	}
	before := count()
	for name, write := range writes {
		for _, epoch := range []*int64{nil, &run.Epoch} {
			ref.Epoch = epoch
			if err := write(ref); ckpt.CodeOf(err) != ckpt.CodeFenced {
				t.Errorf("%s (epoch named: %v) answers %v, want fenced", name, epoch != nil, err)
			}
		}
	}
	if after := count(); after != before {
		t.Errorf("the run had %d checkpoints and has %d", before, after)
	}

	wantWaiting(t, s, 0, 0)

	got, err := s.Checkpoint(t.Context(), ann, saved.ID, true)
	if err != nil || string(got.State) != "4" {
		t.Errorf("the run's newest checkpoint reads %+v, %v", got, err)
	}
	_, _, err = s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "strand", ForkFrom: ckpt.Ref(saved.ID)})
	must(t, err)
	other.ID = ""
	_, err = s.Save(t.Context(), ann, other)
	must(t, err)

	s.SetElsewhere(nil)
	save(t, s, ann, "a", ckpt.KindRoutine, "10")
	wantWaiting(t, s, 2, 1) // an operation has a prompt of its own
}

// wantWaiting checks what waits for a person here: the open prompts and the uncertain operations. Nobody can settle here
// what a run of another host waits for.
func wantWaiting(t *testing.T, s *db.Store, prompts, operations int64) {
	t.Helper()
	page, err := s.Prompts(t.Context(), ann, ckpt.PromptFilter{Open: true})
	must(t, err)
	st, err := s.Status(t.Context(), ann)
	must(t, err)
	o, _, err := s.Overview(t.Context(), ann, survey.OverviewQuery{})
	must(t, err)
	needs := map[string]int64{}
	for _, n := range o.Needs {
		needs[n.What]++
	}
	if int64(len(page.Prompts)) != prompts || st.Waiting.OpenPrompts != prompts || needs[survey.NeedPrompt]+needs[survey.NeedOperation] != prompts ||
		st.Waiting.UncertainOperations != operations {
		t.Errorf("want %d prompts and %d operations: %d are listed, the status counts %+v, the overview %v",
			prompts, operations, len(page.Prompts), st.Waiting, needs)
	}
}
