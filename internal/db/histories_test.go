package db_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// history makes a history through the calls that agents, operators and the monitor make, and requests the plan.
// Each history has the name of the golden file of internal/resume whose sentences it must produce.
type history struct {
	t     *testing.T
	s     *db.Store
	clock *clock
	p     *processes
	saved []*ckpt.Saved
	ask   ckpt.ResumeRequest
	who   ckpt.Scope
}

// wait lets minutes pass.
func (h *history) wait(minutes int) { h.clock.add(time.Duration(minutes) * time.Minute) }

func (h *history) must(err error) {
	h.t.Helper()
	must(h.t, err)
}

// start registers the run for a process; 0 means that no process is known.
func (h *history) start(pid int) {
	h.t.Helper()
	beat := ckpt.Duration(30 * time.Second)
	_, _, err := h.s.StartRun(h.t.Context(), as(pid), ckpt.RunRequest{Agent: "a", PID: pid, HeartbeatTimeout: &beat})
	h.must(err)
}

// save saves without a process, so that the owner of the run does not change.
func (h *history) save(kind ckpt.Kind, state string, change ...func(*ckpt.SaveRequest)) {
	h.t.Helper()
	r := request("a", kind, state)
	for _, f := range change {
		f(r)
	}
	saved, err := h.s.Save(h.t.Context(), ann, r)
	h.must(err)
	h.saved = append(h.saved, saved)
}

func (h *history) routine(n int) {
	h.t.Helper()
	for range n {
		h.save(ckpt.KindRoutine, `{"n":1}`)
	}
}

func (h *history) step(key, name string, status ckpt.StepStatus) {
	h.t.Helper()
	_, _, err := h.s.BeginStep(h.t.Context(), ann, mainRun, ckpt.StepRequest{Key: key, Name: name, Status: status})
	h.must(err)
}

func (h *history) operation(key, name, state string) {
	h.t.Helper()
	_, _, err := h.s.BeginOperation(h.t.Context(), ann, mainRun, ckpt.OperationRequest{Key: key, Name: name, State: ckpt.JSON(state)})
	h.must(err)
}

// gone records what the monitor found about the owner. Its process is dead, unless the owner timed out.
func (h *history) begin(r ckpt.OperationRequest) {
	h.t.Helper()
	_, _, err := h.s.BeginOperation(h.t.Context(), ann, mainRun, r)
	h.must(err)
}

func (h *history) doubt(key, evidence string) {
	h.t.Helper()
	_, _, err := h.s.EndOperation(h.t.Context(), ann, mainRun, ckpt.OperationEnd{Key: key, Status: ckpt.OperationUncertain, Error: ckpt.Ref(evidence)})
	h.must(err)
}

func (h *history) gone(pid int, status ckpt.RunStatus) {
	h.t.Helper()
	if status == ckpt.RunInterrupted {
		h.p.kill(pid)
	}
	watched, err := h.s.Watched(h.t.Context(), 0, 10)
	h.must(err)
	if len(watched) != 1 {
		h.t.Fatalf("watched are %v", watched)
	}
	did, err := h.s.Interrupt(h.t.Context(), watched[0], status, "its process ended")
	h.must(err)
	if !did {
		h.t.Fatal("nothing was interrupted")
	}
}

// claimed lets a run be interrupted, and requests the plan as for a run that was claimed from another host.
func (h *history) claimed(from ckpt.PlanFleet) {
	h.t.Helper()
	h.start(4242)
	h.routine(1)
	h.step("call_1", "search", ckpt.StepSucceeded)
	h.gone(4242, ckpt.RunInterrupted)
	h.ask.Claimed = &from
}

func (h *history) end(status ckpt.RunStatus, goon string) {
	h.t.Helper()
	_, _, err := h.s.EndRun(h.t.Context(), ann, mainRun, ckpt.EndRequest{Status: status, ContinuationPrompt: ckpt.Ref(goon)})
	h.must(err)
}

func (h *history) careful() {
	h.t.Helper()
	_, err := h.s.SetOwnPolicy(h.t.Context(), ann, "a", []byte(`{"autoresume":false}`))
	h.must(err)
}

// careless sets a policy that lets runs continue by themselves.
func (h *history) careless() {
	h.t.Helper()
	_, err := h.s.SetOwnPolicy(h.t.Context(), ann, "a", []byte(`{}`))
	h.must(err)
}

func (h *history) restore(i int) {
	h.t.Helper()
	_, _, err := h.s.Restore(h.t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: h.saved[i].ID})
	h.must(err)
}

// claim resumes the run for a process.
func (h *history) claim(pid int) *ckpt.Plan {
	h.t.Helper()
	return claim(h.t, h.s, pid)
}

// decide answers the prompt that a plan has made.
func (h *history) decide(pid int, choice ckpt.PromptChoice) {
	h.t.Helper()
	plan := h.claim(pid)
	if plan.Prompt == nil {
		h.t.Fatalf("no prompt: %v", plan.Reasons)
	}
	h.wait(1)
	_, _, err := h.s.AnswerPrompt(h.t.Context(), root, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: choice})
	h.must(err)
}

// question asks a person a question, with the same words each time.
func (h *history) question(key string, expires time.Duration) string {
	h.t.Helper()
	p, _, err := h.s.AskQuestion(h.t.Context(), ann, ckpt.QuestionRequest{Agent: "a", Key: key, Question: "Deploy?", Expires: ckpt.Duration(expires)})
	h.must(err)
	return p.ID
}

// reply answers a question.
func (h *history) reply(id string, choice ckpt.PromptChoice, data string) {
	h.t.Helper()
	h.wait(1)
	a := ckpt.PromptAnswer{ID: id, Choice: choice}
	if data != "" {
		a.Data = ckpt.JSON(data)
	}
	_, _, err := h.s.AnswerPrompt(h.t.Context(), root, a)
	h.must(err)
}

// damage changes a stored state past the store.
func (h *history) damage(i int) {
	h.t.Helper()
	h.must(h.s.ExecForTest(`UPDATE checkpoints SET body = CAST('{"n":9}' AS BLOB) WHERE id = ?`, h.saved[i].ID))
}

// drifts posts the agent's own finding that everything after a checkpoint is suspect.
func (h *history) drifts(since int64) {
	h.t.Helper()
	_, _, err := h.s.PostFinding(h.t.Context(), ann, "a", ckpt.FindingRequest{Rule: "own", Severity: ckpt.SeverityCritical, Message: "It went wrong.", SinceSeq: &since})
	h.must(err)
}

func program(source string, executed int64) func(*ckpt.SaveRequest) {
	return func(r *ckpt.SaveRequest) { r.Program = &ckpt.Program{Source: source, Executed: executed} }
}

var histories = map[string]func(*history){
	"fresh_no_run":    func(h *history) {},
	"fresh_completed": func(h *history) { h.start(7); h.routine(1); h.end(ckpt.RunCompleted, "one more file") },
	"fresh_nothing_saved": func(h *history) {
		h.careful()
		h.start(7)
		h.step("call_1", "search", ckpt.StepFailed)
		h.gone(7, ckpt.RunInterrupted)
	},
	"fresh_with_a_question": func(h *history) {
		h.start(7)
		h.reply(h.question("k1", 0), "yes", "")
		h.end(ckpt.RunSuspended, "")
	},
	"fresh_ended_questions_are_history": func(h *history) {
		h.start(7)
		h.reply(h.question("k1", 0), "yes", "")
		h.end(ckpt.RunCompleted, "")
	},
	"resume_questions": func(h *history) {
		h.start(7)
		h.reply(h.question("k1", 0), "yes", "") // before the checkpoint, so the state contains the answer
		h.routine(1)
		h.reply(h.question("k2", 0), "approve", `{"env":"prod"}`)
		h.reply(h.question("k3", 0), "", `7`)
		h.question("k4", 0)
		h.question("k5", time.Minute)
		h.question("k6", 0)
		h.wait(2)
		h.gone(7, ckpt.RunInterrupted)
	},
	"fresh_reinitialized": func(h *history) {
		h.careful()
		h.start(7)
		h.routine(1)
		h.gone(7, ckpt.RunInterrupted)
		h.decide(8, ckpt.ChoiceReinitialize)
	},
	"fresh_failed_abandoned": func(h *history) {
		h.careful()
		h.start(7)
		h.routine(1)
		h.gone(7, ckpt.RunInterrupted)
		h.decide(8, ckpt.ChoiceAbandon)
	},
	"resume_suspended": func(h *history) { h.careful(); h.start(7); h.routine(1); h.end(ckpt.RunSuspended, "") },
	"resume_stopped_by_owner": func(h *history) {
		h.careful()
		h.start(7)
		h.save(ckpt.KindRecovery, `1`)
		h.end(ckpt.RunInterrupted, "")
	},
	"resume_awaiting_continuation": func(h *history) {
		h.careful()
		h.start(7)
		h.routine(1)
		h.end(ckpt.RunAwaitingContinuation, "Go on with chapter 4.")
	},
	"resume_caller_is_owner": func(h *history) { h.start(7); h.routine(1); h.ask.PID, h.who = 7, as(7) },
	"resume_forced":          func(h *history) { h.start(7); h.routine(1); h.ask.Force = true },
	"resume_nobody_known":    func(h *history) { h.careful(); h.routine(1) },
	"resume_clean": func(h *history) {
		h.start(4242)
		h.step("call_0", "read", ckpt.StepSucceeded)
		h.routine(2)
		h.step("call_1", "search", ckpt.StepSucceeded)
		h.step("call_2", "search", ckpt.StepFailed)
		h.step("call_3", "write", ckpt.StepSucceeded)
		h.gone(4242, ckpt.RunInterrupted)
	},
	"resume_steps_only": func(h *history) {
		h.start(7)
		h.step("s1", "fetch", ckpt.StepSucceeded)
		h.step("s2", "parse", ckpt.StepSucceeded)
		h.gone(7, ckpt.RunInterrupted)
	},
	"resume_contained_interrupted_step": func(h *history) {
		h.start(7)
		h.routine(1)
		h.step("call_1", "search", "")
		h.gone(7, ckpt.RunInterrupted)
		h.claim(8)
		h.wait(1)
		h.routine(1)
		h.gone(8, ckpt.RunInterrupted)
	},
	"resume_program_done": func(h *history) {
		h.start(7)
		h.save(ckpt.KindRoutine, `1`, program("await pay(1)\n", 13))
		h.gone(7, ckpt.RunInterrupted)
	},
	"resume_program_repeated_statement": func(h *history) {
		h.start(7)
		h.save(ckpt.KindRoutine, `1`, program("await pay(1)\nawait pay(1)\nawait pay(1)\nawait done()\n", 26))
		h.gone(7, ckpt.RunInterrupted)
	},
	"resume_restored_older": func(h *history) { h.routine(4); h.restore(1); h.end(ckpt.RunSuspended, "") },
	"resume_newest_left": func(h *history) {
		h.routine(3)
		_, err := h.s.Delete(h.t.Context(), ann, h.saved[2].ID)
		h.must(err)
		h.end(ckpt.RunSuspended, "")
	},
	"resume_autoresume_off_answered": func(h *history) {
		h.careful()
		h.start(7)
		h.routine(1)
		h.wait(5)
		h.gone(7, ckpt.RunTimedOut)
		h.p.kill(7)
		h.decide(8, ckpt.ChoiceResume)
	},
	"resume_fork_checkpoint": func(h *history) {
		h.save(ckpt.KindRoutine, `1`, func(r *ckpt.SaveRequest) { r.Run = "trunk" })
		_, _, err := h.s.StartRun(h.t.Context(), as(7), ckpt.RunRequest{Agent: "a", PID: 7, ForkFrom: ckpt.Ref(h.saved[0].ID)})
		h.must(err)
		h.step("s1", "fetch", ckpt.StepSucceeded)
		h.gone(7, ckpt.RunInterrupted)
	},
	"repair_interrupted_steps": func(h *history) {
		h.start(4242)
		h.routine(1)
		h.step("call_1", "search", ckpt.StepSucceeded)
		h.step("call_2", "write_file", "")
		h.step("call_3", "call_3", "")
		h.gone(4242, ckpt.RunInterrupted)
	},
	"repair_claimed":          func(h *history) { h.claimed(ckpt.PlanFleet{FromHost: "alpha", StrandPossible: true}) },
	"repair_claimed_released": func(h *history) { h.claimed(ckpt.PlanFleet{FromHost: "alpha"}) },
	"repair_claimed_lost": func(h *history) {
		h.claimed(ckpt.PlanFleet{FromHost: "alpha", StrandPossible: true, LostAtMost: ckpt.Duration(3 * time.Second)})
	},
	"repair_timed_out_steps": func(h *history) {
		h.start(4242)
		h.step("call_1", "search", "")
		h.wait(5)
		h.gone(4242, ckpt.RunTimedOut)
		h.p.kill(4242)
	},
	"repair_checkpoint_during_step": func(h *history) {
		h.start(7)
		h.routine(1)
		h.step("call_1", "search", "")
		h.wait(1)
		h.routine(1)
		h.gone(7, ckpt.RunInterrupted)
	},
	"repair_caller_resumes_itself": func(h *history) { h.start(7); h.step("call_1", "search", ""); h.ask.PID, h.who = 7, as(7) },
	"repair_forced_dry_run": func(h *history) {
		h.start(4242)
		h.routine(1)
		h.step("call_1", "search", "")
		h.ask.Force, h.ask.DryRun = true, true
	},
	"repair_damaged": func(h *history) { h.start(7); h.routine(2); h.damage(1); h.gone(7, ckpt.RunInterrupted) },
	"repair_restored_damaged": func(h *history) {
		_, err := h.s.SetOwnPolicy(h.t.Context(), ann, "a", []byte(`{"routine_keep":0}`))
		h.must(err)
		h.routine(5)
		h.restore(2)
		h.damage(2)
		h.end(ckpt.RunSuspended, "")
	},
	"repair_owner_frozen": func(h *history) { h.start(4242); h.routine(1); h.wait(5); h.gone(4242, ckpt.RunTimedOut) },
	"unsafe_owner_alive": func(h *history) {
		h.start(4242)
		h.routine(1)
		h.step("call_1", "search", "")
		h.operation("deploy", "release", "")
	},
	"unsafe_only_one_damaged":          func(h *history) { h.start(7); h.routine(1); h.damage(0); h.gone(7, ckpt.RunInterrupted) },
	"unsafe_owner_alive_nothing_saved": func(h *history) { h.start(7); h.ask.DryRun = true },
	"ask_operation_uncertain": func(h *history) {
		h.start(4242)
		h.routine(1)
		h.operation("deploy", "release", `{"plan":"deploy","done":[1,2]}`)
		h.gone(4242, ckpt.RunInterrupted)
	},
	"ask_operation_without_state": func(h *history) {
		h.start(7)
		h.operation("deploy", "release", "")
		h.operation("mail", "send", "")
		h.gone(7, ckpt.RunInterrupted)
	},
	"ask_operation_open": func(h *history) {
		h.operation("deploy", "deploy", `1`) // of an agent that does not use runs
		h.routine(1)
	},
	"ask_many_operations": func(h *history) {
		h.start(7)
		for _, key := range []string{"o1", "o2", "o3", "o4", "o5", "o6", "o7"} {
			h.operation(key, "send", "") // nothing is saved yet, so there is no rollback target
		}
		h.routine(1)
		h.gone(7, ckpt.RunInterrupted)
	},
	"ask_autoresume_off": func(h *history) {
		h.start(4242)
		h.routine(1)
		h.step("call_1", "search", "")
		h.gone(4242, ckpt.RunInterrupted)
		h.careful() // after it was found, so that no prompt exists yet
	},
	"ask_autoresume_off_pending": func(h *history) {
		h.careful()
		h.start(7)
		h.routine(1)
		h.wait(5)
		h.gone(7, ckpt.RunTimedOut)
		h.p.kill(7)
		h.claim(8)
	},
	"ask_state_not_json": func(h *history) {
		h.start(7)
		h.save(ckpt.KindRoutine, `hello`, func(r *ckpt.SaveRequest) { r.ContentType = "text/plain" })
		h.gone(7, ckpt.RunInterrupted)
		h.careful()
	},
	"repair_suspects": func(h *history) {
		h.start(4242)
		h.routine(1)
		h.step("call_7", "search", ckpt.StepSucceeded)
		h.routine(1)
		h.step("call_8", "search", ckpt.StepSucceeded)
		h.drifts(1)
		h.gone(4242, ckpt.RunInterrupted)
	},
	"repair_found": func(h *history) { h.start(4242); h.routine(2); h.drifts(1); h.gone(4242, ckpt.RunInterrupted) },
	"repair_one_suspect": func(h *history) {
		h.start(4242)
		h.routine(1)
		h.step("call_7", "search", ckpt.StepSucceeded)
		h.drifts(1)
		h.gone(4242, ckpt.RunInterrupted)
	},
	"ask_found": func(h *history) { h.start(4242); h.routine(1); h.drifts(0); h.gone(4242, ckpt.RunInterrupted) },
	"ask_all_suspect": func(h *history) {
		h.start(7)
		h.drifts(0)
		h.routine(2)
		h.step("call_1", "search", ckpt.StepSucceeded)
		h.routine(1)
		h.damage(2)
		h.gone(7, ckpt.RunInterrupted)
	},
	"repair_operator_trusts_suspect": func(h *history) {
		h.start(7)
		h.routine(1)
		h.drifts(0)
		h.gone(7, ckpt.RunInterrupted)
		h.decide(8, ckpt.ChoiceResume)
	},
	"ask_autoresume_off_answered_before": func(h *history) {
		h.careful()
		h.start(7)
		h.routine(1)
		h.gone(7, ckpt.RunInterrupted)
		h.decide(8, ckpt.ChoiceResume)
		h.claim(8)
		h.careless()
		h.wait(1)
		h.gone(8, ckpt.RunInterrupted)
		h.careful()
	},
	"repair_damaged_program": func(h *history) {
		h.start(7)
		for range 3 {
			h.save(ckpt.KindRoutine, `1`, program("é()", 2))
		}
		for i, executed := range map[int]string{1: "9", 2: "1"} {
			h.must(h.s.ExecForTest(`UPDATE checkpoints SET program = json_set(program, '$.executed', CAST(? AS INTEGER)) WHERE id = ?`, executed, h.saved[i].ID))
		}
		h.gone(7, ckpt.RunInterrupted)
	},
	"repair_clock_set_back": func(h *history) {
		h.start(7)
		h.routine(1)
		h.wait(-29)
		h.step("call_1", "search", "")
		h.wait(1)
		h.gone(7, ckpt.RunInterrupted)
		h.claim(8)
		h.wait(29)
		h.gone(8, ckpt.RunInterrupted)
	},
	"repair_idempotent_operation": func(h *history) {
		h.start(7)
		h.begin(ckpt.OperationRequest{Key: "charge", Name: "charge", State: ckpt.JSON(`1`), Idempotent: true})
		h.gone(7, ckpt.RunInterrupted)
	},
	"repair_operation_checks_itself": func(h *history) {
		h.start(7)
		h.begin(ckpt.OperationRequest{Key: "charge", Name: "charge", State: ckpt.JSON(`1`), SelfCheck: true})
		h.gone(7, ckpt.RunInterrupted)
	},
	"ask_check_could_not_tell": func(h *history) {
		h.start(7)
		h.begin(ckpt.OperationRequest{Key: "charge", Name: "charge", State: ckpt.JSON(`1`), SelfCheck: true})
		h.doubt("charge", "TimeoutError: the provider did not answer.")
		h.doubt("charge", "the check could not tell")
		h.gone(7, ckpt.RunInterrupted)
	},
}

// madeUp are the golden files that no history here produces, and the reasons.
var madeUp = map[string]string{
	"fresh_fork":                            "the checkpoint that a fork begins with stays until its first save",
	"error_unreadable":                      "it is no plan: the database is busy",
	"unsafe_no_progress_but_alive":          "a store gives timed_out together with a process that stands, as repair_owner_frozen has it",
	"ask_autoresume_off_old_prompt_pending": "a prompt ends with the interruption that it is about",
	"ask_clean_ones_damaged":                "its parts are in ask_all_suspect and repair_damaged",
	"ask_everything":                        "a mixture of the others",
	"repair_many_findings":                  "repair_one_suspect has one, and nothing here breaks seven rules at once",
	"repair_everything_named":               "many of each of what the others have",
	"ask_resume_resolves_nothing":           "no store takes the answer resume while an operation is uncertain",
	"ask_failed_over_an_operation":          "no store ends a run over an operation, unless it is told to leave it",
	"unsafe_all_damaged":                    "a mixture of unsafe_only_one_damaged and others",
	"unsafe_owner_unseen":                   "TestDescribeWithoutAProcess has an owner that cannot be seen",
	"resume_forced_owner_unseen":            "resume_forced has the takeover, and unsafe_owner_unseen the owner",
}

// TestPlansOfRealHistories: the golden files of internal/resume were written from made-up facts. Each history here
// is made by real calls to a real store, and must produce the sentences of the golden file with its name.
func TestPlansOfRealHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "resume", "testdata", "*.txt"))
	must(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if (histories[name] == nil) == (madeUp[name] == "") {
			t.Errorf("%s: tell its history, or say in madeUp why it has none", name)
		}
	}
	for name, tell := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{t: t, who: as(99), ask: ckpt.ResumeRequest{Agent: "a"}}
			h.s, h.clock, h.p = openRuns(t)
			tell(h)
			h.clock.add(time.Minute)
			plan, _, err := h.s.Resume(t.Context(), h.who, h.ask)
			must(t, err)
			text, err := os.ReadFile(filepath.Join("..", "resume", "testdata", name+".txt"))
			must(t, err)
			if diff := cmp.Diff(sentencesOf(string(text)), sentences(string(plan.Verdict), plan.Reasons)); diff != "" {
				t.Errorf("(-what was made up +what is so)\n%s", diff)
			}
		})
	}
}

// sentencesOf returns the verdict and the reasons of a golden file.
func sentencesOf(golden string) []string {
	_, answer, _ := strings.Cut(golden, "--- answer\n")
	verdict, answer, _ := strings.Cut(answer, "\n")
	var reasons []string
	for line := range strings.Lines(answer) {
		if reason, ok := strings.CutPrefix(line, "- "); ok {
			reasons = append(reasons, strings.TrimSpace(reason))
		}
	}
	return sentences(verdict, reasons)
}

// varies are the parts that differ between two equal histories.
var varies = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z \([^)]*\)`), "T"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}|\b[cpq]\d+\b`), "ID"},
	{regexp.MustCompile(`number \d+`), "number N"},
	{regexp.MustCompile(` \(process \d+\)`), ""},
	{regexp.MustCompile(`agent (coder|a)\b`), "agent A"},
	{regexp.MustCompile(`resolve (coder|a) `), "resolve A "},
	{regexp.MustCompile(`checkpoint f7\b`), "checkpoint ID"},
	{regexp.MustCompile(`found at T: .*`), "found at T: this."},
	{regexp.MustCompile(`after \d+ (s|min|h)\b`), "after a time"},
}

func sentences(verdict string, reasons []string) []string {
	list := []string{verdict}
	for _, reason := range reasons {
		for _, v := range varies {
			reason = v.what.ReplaceAllString(reason, v.as)
		}
		list = append(list, reason)
	}
	return list
}
