package hook_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// runOf reads a run of the handler's agent.
func runOf(t *testing.T, h *hook.Handler, name string) *ckpt.Run {
	t.Helper()
	run, err := h.Client.Run(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: name})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// wantOwner fails the test unless a run is running and belongs to a process.
func wantOwner(t *testing.T, h *hook.Handler, name string, pid int) {
	t.Helper()
	if run := runOf(t, h, name); run.Status != ckpt.RunRunning || run.PID != pid {
		t.Errorf("run %s is %s and belongs to process %d, not %d", name, run.Status, run.PID, pid)
	}
}

// wantOperation fails the test unless a run has one operation, with a status.
func wantOperation(t *testing.T, h *hook.Handler, name string, status ckpt.OperationStatus) {
	t.Helper()
	list, err := h.Client.Operations(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: name}, ckpt.ListFilter{})
	if err != nil || len(list.Operations) != 1 || list.Operations[0].Status != status {
		t.Errorf("the operations are %+v, not one that is %s; error %v", list, status, err)
	}
}

func push(id string) map[string]any {
	return map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "git push origin x"}, "tool_use_id": id}
}

// TestASessionThatIsContinuedGetsItsRunBack: whoever continues a session that stopped in a risky call has decided that
// it goes on. The call stays uncertain until a person resolves it.
func TestASessionThatIsContinuedGetsItsRunBack(t *testing.T) {
	for name, test := range map[string]struct{ killed, autoresume bool }{
		"after its end": {false, true}, "after a kill": {true, true}, "after a kill, without autoresume": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandler(t)
			policy := ckpt.DefaultPolicy()
			policy.Autoresume = test.autoresume
			if _, err := h.Client.SetPolicy(t.Context(), h.Agent, policy); err != nil {
				t.Fatal(err)
			}
			pid, kill := agentProcess(t)
			h.PID = pid
			tells(t, h, in("SessionStart", "one", map[string]any{"source": "startup"}))
			tells(t, h, in("UserPromptSubmit", "one", map[string]any{"prompt": "ship it"}))
			tells(t, h, in("PreToolUse", "one", push("push")))
			if test.killed {
				kill()
				untilInterrupted(t, h, "one")
			} else {
				tells(t, h, in("SessionEnd", "one", map[string]any{"reason": "prompt_input_exit"}))
			}

			h.PID, kill = agentProcess(t)
			told := tells(t, h, in("SessionStart", "one", map[string]any{"source": "resume"}))
			for _, part := range []string{"This session stopped before it was done, and now continues.", `Risky and uncertain: "shell git push origin x"`} {
				if !strings.Contains(told, part) {
					t.Errorf("it is told %q, without %q", told, part)
				}
			}
			tells(t, h, in("UserPromptSubmit", "one", map[string]any{"prompt": "go on"}))
			uses(t, h, "one", 1, "Read", map[string]any{"file_path": "a"}, "x")
			tells(t, h, in("Stop", "one", nil))
			wantOwner(t, h, "one", h.PID)
			wantOperation(t, h, "one", ckpt.OperationUncertain)
			wantAnswered(t, h, !test.autoresume)
			if told := tells(t, h, in("SessionStart", "two", map[string]any{"source": "startup"})); told != "" {
				t.Errorf("a session beside it is told that it stopped: %s", told)
			}

			kill()
			untilInterrupted(t, h, "one")
			h.PID = os.Getpid()
			for range 2 { // the second time, it goes on after an end that nobody had interrupted
				tells(t, h, in("SessionStart", "one", map[string]any{"source": "resume"}))
				wantOwner(t, h, "one", h.PID)
				tells(t, h, in("SessionEnd", "one", nil))
				if run := runOf(t, h, "one"); run.Status != ckpt.RunInterrupted {
					t.Errorf("it ended as %s, with an uncertain operation", run.Status)
				}
				wantOperation(t, h, "one", ckpt.OperationUncertain)
			}
		})
	}
}

// wantAnswered fails the test unless the question about the operation still waits, and the decision about the run, if the
// policy asks for one, was answered. The audit log says why.
func wantAnswered(t *testing.T, h *hook.Handler, decided bool) {
	t.Helper()
	page, err := h.Client.Prompts(t.Context(), ckpt.PromptFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range page.Prompts {
		if p.Run == "one" && (p.Status == ckpt.PromptOpen) != (p.Kind == ckpt.PromptOperation) {
			t.Errorf("a prompt: %+v", p)
		}
	}
	rows, err := h.Client.Audit(t.Context(), ckpt.AuditFilter{Action: "answer_prompt"})
	if err != nil || (len(rows.Audit) == 1) != decided {
		t.Errorf("the answers in the audit log are %+v, error %v", rows, err)
	}
	rows, err = h.Client.Audit(t.Context(), ckpt.AuditFilter{Action: "resume", Limit: 1})
	if err != nil || len(rows.Audit) != 1 || rows.Audit[0].Reason != "The session was continued in claude-code." {
		t.Errorf("the resumes in the audit log are %+v, error %v", rows, err)
	}
}

// TestASessionThatIsOpenTwice: while one process owns the run of a session, another one that has the same session open
// records nothing in it, and does not end what the first one does.
func TestASessionThatIsOpenTwice(t *testing.T) {
	one := newHandler(t)
	two := *one
	pid, kill := agentProcess(t)
	one.PID = pid
	tells(t, one, in("SessionStart", "s", map[string]any{"source": "startup"}))
	tells(t, one, in("UserPromptSubmit", "s", map[string]any{"prompt": "ship it"}))
	tells(t, one, in("PreToolUse", "s", push("push")))
	before := runOf(t, one, "s")

	read := map[string]any{"tool_name": "Read", "tool_input": map[string]any{"file_path": "a"}, "tool_use_id": "read"}
	for _, input := range []*hook.Input{
		in("SessionStart", "s", map[string]any{"source": "resume"}), in("UserPromptSubmit", "s", map[string]any{"prompt": "go on"}),
		in("PreToolUse", "s", read), in("PostToolUse", "s", read), in("PreCompact", "s", nil), in("Stop", "s", nil), in("SessionEnd", "s", nil),
	} {
		out, err := two.Handle(t.Context(), input)
		if ckpt.CodeOf(err) != ckpt.CodeFenced {
			t.Errorf("%s: error %v", input.Event, err)
		}
		if input.Event != "SessionStart" {
			continue
		}
		if told := contextOf(t, input.Event, out); !strings.Contains(told, "what happens here is not recorded") {
			t.Errorf("it is told %q", told)
		}
	}
	wantOwner(t, one, "s", pid)
	wantOperation(t, one, "s", ckpt.OperationOpen)
	if after := runOf(t, one, "s"); after.Epoch != before.Epoch || !after.UpdatedAt.Equal(before.UpdatedAt.Time) {
		t.Errorf("the run has changed: %+v", after)
	}

	kill()
	if told := tells(t, &two, in("UserPromptSubmit", "s", map[string]any{"prompt": "go on"})); !strings.Contains(told, "This session stopped") {
		t.Errorf("when the first process is gone, the second is told %q", told)
	}
	wantOwner(t, &two, "s", two.PID)
	wantOperation(t, &two, "s", ckpt.OperationUncertain)
}

// TestASessionIsToldOnceWhateverComesNext: the first prompt of a session that was told, and its own end and new
// beginning, do not hide from the next session that it was told.
func TestASessionIsToldOnceWhateverComesNext(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionStart", "one", map[string]any{"source": "startup"}))
	tells(t, h, in("PreToolUse", "one", push("push")))
	tells(t, h, in("SessionEnd", "one", nil))
	if told := tells(t, h, in("SessionStart", "two", map[string]any{"source": "startup"})); !strings.Contains(told, "git push origin x") {
		t.Errorf("the next session is told %q", told)
	}
	tells(t, h, in("UserPromptSubmit", "two", map[string]any{"prompt": "something else"}))
	if told := tells(t, h, in("SessionStart", "three", map[string]any{"source": "startup"})); told != "" {
		t.Errorf("told again beside it: %s", told)
	}
	tells(t, h, in("SessionEnd", "three", nil))
	tells(t, h, in("SessionEnd", "two", nil))
	uses(t, h, "two", 1, "Read", map[string]any{"file_path": "a"}, "x") // it begins anew
	if labels := runOf(t, h, "two").Labels; !strings.HasPrefix(labels["after"], "one") || labels["product"] != "claude-code" {
		t.Errorf("the labels of the session that was told are %v", labels)
	}
}

// TestASessionThatStopsAgainIsToldAgain: it was continued in between.
func TestASessionThatStopsAgainIsToldAgain(t *testing.T) {
	h := newHandler(t)
	for n, source := range []string{"startup", "resume"} {
		tells(t, h, in("SessionStart", "one", map[string]any{"source": source}))
		tells(t, h, in("UserPromptSubmit", "one", map[string]any{"prompt": "ship it"}))
		tells(t, h, in("PreToolUse", "one", push(fmt.Sprint("push", n))))
		tells(t, h, in("SessionEnd", "one", nil))
		next := fmt.Sprint("next", n)
		if told := tells(t, h, in("SessionStart", next, map[string]any{"source": "startup"})); strings.Count(told, "Risky and uncertain") != n+1 {
			t.Errorf("the session after stop %d is told %q", n+1, told)
		}
		tells(t, h, in("UserPromptSubmit", next, map[string]any{"prompt": "something else"}))
		if told := tells(t, h, in("SessionStart", next+"b", map[string]any{"source": "startup"})); told != "" {
			t.Errorf("told again after stop %d: %s", n+1, told)
		}
	}
}

// TestASubagentKeepsItsLabel: the run of a subagent that goes on after its end is still that of the same kind.
func TestASubagentKeepsItsLabel(t *testing.T) {
	h := newHandler(t)
	of := map[string]any{"agent_id": "a1", "agent_type": "Explore"}
	tells(t, h, in("SubagentStart", "s", of))
	tells(t, h, in("SubagentStop", "s", of))
	tells(t, h, in("PreToolUse", "s", map[string]any{"agent_id": "a1", "tool_name": "Read", "tool_input": map[string]any{}, "tool_use_id": "r"}))
	if run := runOf(t, h, "s.a1"); run.Labels["subagent"] != "Explore" || !run.EndedAt.IsZero() {
		t.Errorf("the run is %+v", run)
	}
}

// TestARunThatACallHasMadeGetsItsLabels: the daemon was away when the session began.
func TestARunThatACallHasMadeGetsItsLabels(t *testing.T) {
	h := newHandler(t)
	uses(t, h, "s", 1, "Read", map[string]any{"file_path": "a"}, "x")
	tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": "go on"}))
	if labels := runOf(t, h, "s").Labels; labels["product"] != "claude-code" || labels["project"] != h.Project.ID {
		t.Errorf("the labels are %v", labels)
	}
}
