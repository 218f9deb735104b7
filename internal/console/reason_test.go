package console

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestChangesOfCheckpointsSayWhy sends each form about a checkpoint, and finds
// the reason in the audit log of a real daemon.
func TestChangesOfCheckpointsSayWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saved := w.save("coder", "one", `{"n": 1}`)
	for _, c := range []struct{ name, what, action, field, value string }{
		{"pin", "pin", "change", "", ""},
		{"unpin", "unpin", "change", "", ""},
		{"label", "label", "change", "labels", "stage=done"},
		{"fork", "fork", "start_run", "name", "two"},
		{"fork with another state", "fork", "change", "name", "three"},
	} {
		why := "because of " + c.name
		values, page := w.form("ask/" + c.what + "?" + w.formOf(saved, "coder", "one"))
		if values.Get("key") == "" {
			t.Fatalf("%s: there is no form: %s", c.name, page)
		}
		if c.field != "" {
			values.Set(c.field, c.value)
		}
		if c.value == "three" {
			values.Set("state", `{"n": 99}`)
		}
		if status, text := w.act(c.what, values); status != 422 {
			t.Errorf("%s without a reason is answered with %d: %s", c.name, status, text)
		}
		values.Set("reason", why)
		if status, text := w.act(c.what, values); status != 200 {
			t.Errorf("%s is answered with %d: %s", c.name, status, text)
			continue
		}
		if all := w.reasons(); !slices.Contains(all[c.action], why) {
			t.Errorf("%s: the audit log does not say why: %q", c.name, all)
		}
	}
}

// TestAForkIsANewRun: a fork does not begin a run anew that the agent already has.
func TestAForkIsANewRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	saved := w.save("keeper", "main", `{"n": 1}`)
	old := ckpt.RunRef{Agent: "keeper", Run: "report-q3"}
	run, _, err := w.client.StartRun(ctx, ckpt.RunRequest{Agent: old.Agent, Run: old.Run})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.client.EndRun(ctx, old, ckpt.EndRequest{Epoch: &run.Epoch, Status: ckpt.RunCompleted, Result: ckpt.JSON(`"42"`)}); err != nil {
		t.Fatal(err)
	}
	from := saved
	fork := func(name, state string) (int, string, string) {
		values, page := w.form("ask/fork?" + w.formOf(from, "keeper", "main"))
		_, after, _ := strings.Cut(page, `name="name" value="`)
		proposed, _, _ := strings.Cut(after, `"`)
		values.Set("name", cmp.Or(name, proposed))
		values.Set("reason", "try it again")
		if state != "" {
			values.Set("state", state)
		}
		status, text := w.act("fork", values)
		return status, text, proposed
	}
	for _, state := range []string{"", `{"n": 2}`} {
		if status, text, _ := fork(old.Run, state); status != 422 || !strings.Contains(text, "choose another name") {
			t.Errorf("a fork under the name of an ended run is answered with %d: %s", status, text)
		}
	}
	if now, err := w.client.Run(ctx, old); err != nil || now.Status != ckpt.RunCompleted || string(now.Result) != `"42"` {
		t.Errorf("the ended run is %+v, %v", now, err)
	}
	for _, want := range []string{"main-fork-1", "main-fork-1-2", "main-fork-1-3"} {
		status, text, proposed := fork("", "")
		if status != 200 || proposed != want || !strings.Contains(text, "The run "+want+" begins with checkpoint 1. Start") {
			t.Errorf("the fork %s, proposed as %s, is answered with %d: %s", want, proposed, status, text)
		}
	}
	from = w.save("keeper", "main", `{"n": 5}`)
	if status, text, _ := fork("changed", `{"n": 2}`); status != 200 || !strings.Contains(text, "begins with the changed state of checkpoint 2. Start") {
		t.Errorf("a fork with a changed state is answered with %d: %s", status, text)
	}
	for name, parent := range map[string]*ckpt.Saved{"main-fork-1": saved, "changed": from} {
		page := unescaped(w.page("o/" + w.owner + "/keeper/" + name))
		for _, want := range []string{
			"ckptsidecar exec --agent keeper --run " + name + " -- COMMAND", ckpt.CommandUnknown, "Nobody runs it yet", "not yet",
			fmt.Sprintf(`/keeper/main?cp=%s">forked from <b>checkpoint %d of main</b>`, parent.ID, parent.Seq),
		} {
			if !strings.Contains(page, want) {
				t.Errorf("the page of %s has no %q: %s", name, want, page)
			}
		}
	}
	if _, err := w.client.Delete(ctx, from.ID); err != nil {
		t.Fatal(err)
	}
	if page := w.page("o/" + w.owner + "/keeper/changed"); !strings.Contains(page, "a checkpoint that is not kept any more") {
		t.Errorf("a fork whose parent is gone does not say so: %s", page)
	}
}

// TestRestoreSaysWhatAResumeLoads: the form of a restore names the checkpoint that the next resume loads.
func TestRestoreSaysWhatAResumeLoads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.save("coder", "one", `{"n": 1}`)
	w.save("coder", "one", `{"n": 2}`)
	form, page := w.form("ask/restore?" + w.formOf(first, "coder", "one"))
	if !strings.Contains(page, "The next resume will load checkpoint 1,") || !strings.Contains(page, "the progress of the run is cleared") {
		t.Errorf("the form does not say what it changes: %s", page)
	}
	form.Set("reason", "the second is wrong")
	if status, text := w.act("restore", form); status != 200 || !strings.Contains(text, "the next resume will load it") {
		t.Errorf("the form is answered with %d: %s", status, text)
	}
	if _, _, err := w.client.EndRun(t.Context(), ckpt.RunRef{Agent: "coder", Run: "one"}, ckpt.EndRequest{Status: ckpt.RunInterrupted}); err != nil {
		t.Fatal(err)
	}
	if page := w.page("o/" + w.owner + "/coder/one"); !strings.Contains(page, "<b>Load checkpoint 1</b>") {
		t.Errorf("the resume loads another checkpoint: %s", page)
	}
}

// TestTroubleLeadsBack: a page that refuses a form leads back to the page that the form is about.
func TestTroubleLeadsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saved := w.save("coder", "one", `{"n": 1}`)
	page := runPath(w.base, w.owner, "coder", "one")
	back := `<a href="` + strings.ReplaceAll(page, "+", "&#43;") + `">Back to the page</a>`
	values, _ := w.form("ask/pin?" + w.formOf(saved, "coder", "one"))
	if status, text := w.act("pin", values); status != 422 || !strings.Contains(text, back) {
		t.Errorf("a form without a reason is answered with %d: %s", status, text)
	}
	values.Set("reason", "it is good")
	values.Set("epoch", "77")
	if status, text := w.act("pin", values); status != 409 || !strings.Contains(text, back) {
		t.Errorf("a form of another epoch is answered with %d: %s", status, text)
	}
	answered := w.text("GET", w.base+"ask/answer?"+w.formOf(saved, "coder", "one")+"&prompt="+saved.ID, nil)
	if !strings.Contains(answered, back) {
		t.Errorf("a form that cannot be drawn is answered with %s", answered)
	}
}

// TestPinTwiceIsPinned: if the form of a pin is sent twice, as by a double
// click, the checkpoint is pinned.
func TestPinTwiceIsPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saved := w.save("coder", "one", `{"n": 1}`)
	values, _ := w.form("ask/pin?" + w.formOf(saved, "coder", "one"))
	values.Set("reason", "it is good")
	for range 2 {
		if status, text := w.act("pin", values); status != 200 {
			t.Fatalf("the form is answered with %d: %s", status, text)
		}
	}
	cp, err := w.client.Checkpoint(t.Context(), saved.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if !cp.Pinned {
		t.Error("the second form has undone the first")
	}
}

// TestAnswerTwiceIsAnswered sends the form that ends a run twice. The second time, the run has moved on, because the
// first one was acted on.
func TestAnswerTwiceIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if _, err := w.client.SetOwnPolicy(ctx, "coder", ckpt.JSON(`{"autoresume":false}`)); err != nil {
		t.Fatal(err)
	}
	soon := ckpt.Duration(time.Second)
	if _, _, err := w.client.StartRun(ctx, ckpt.RunRequest{Agent: "coder", Run: "one", HeartbeatTimeout: &soon}); err != nil {
		t.Fatal(err)
	}
	w.save("coder", "one", `{"n": 1}`)
	prompts := new(ckpt.PromptPage) // the run sends no heartbeat, so the daemon asks how it shall go on
	for len(prompts.Prompts) == 0 {
		var err error
		if prompts, err = w.client.Prompts(ctx, ckpt.PromptFilter{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	values, _ := w.form("ask/answer?" + url.Values{"owner": {w.owner}, "agent": {"coder"}, "run": {"one"}, "prompt": {prompts.Prompts[0].ID}}.Encode())
	values.Set("choice", string(ckpt.ChoiceAbandon))
	values.Set("reason", "it is no use")
	for i := range 2 {
		if status, text := w.act("answer", values); status != 200 {
			t.Fatalf("the form, sent %d times, is answered with %d: %s", i+1, status, text)
		}
	}
	if run, err := w.client.Run(ctx, ckpt.RunRef{Agent: "coder", Run: "one"}); err != nil || run.Status != ckpt.RunFailed {
		t.Error(run, err)
	}
}

// TestAFreeAnswerIsTheChoice: what a person types as the answer to a question without choices is found where the
// command and the other clients put it.
func TestAFreeAnswerIsTheChoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	long := strings.Repeat("x", ckpt.MaxChoice+1)
	for typed, want := range map[string]struct{ choice, data string }{
		" the blue one ":      {choice: "the blue one", data: "null"},
		"first\r\nsecond\r\n": {data: `"first\nsecond"`},
		long:                  {data: `"` + long + `"`},
		"  ":                  {data: "null"},
	} {
		asked, _, err := w.client.AskQuestion(t.Context(), ckpt.QuestionRequest{Agent: "coder", Run: "one", Key: hash([]byte(typed)), Question: "Which one?"})
		if err != nil {
			t.Fatal(err)
		}
		values, _ := w.form("ask/answer?" + url.Values{"owner": {w.owner}, "agent": {"coder"}, "run": {"one"}, "prompt": {asked.ID}}.Encode())
		values.Set("text", typed)
		if status, text := w.act("answer", values); status != 422 || !strings.Contains(text, "say why") {
			t.Errorf("without a reason it is answered with %d: %s", status, text)
		}
		values.Set("reason", "it fits")
		status, text := w.act("answer", values)
		if empty := strings.TrimSpace(typed) == ""; empty && status != 422 || !empty && status != 200 {
			t.Errorf("%.20q is answered with %d: %s", typed, status, text)
		}
		p, err := w.client.Prompt(t.Context(), asked.ID)
		if err != nil {
			t.Fatal(err)
		}
		if string(p.Choice) != want.choice || string(p.Data) != want.data {
			t.Errorf("of %.20q the choice is %q, and the data %s", typed, p.Choice, p.Data)
		}
	}
}

// TestAFormResolvesTheAttemptThatItShowed: each of the three answers is given once, and a form that was drawn before an answer
// decides nothing any more.
func TestAFormResolvesTheAttemptThatItShowed(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]ckpt.OperationStatus{
		"it_did": ckpt.OperationSucceeded, "it_did_not": ckpt.OperationFailed, "repeat": ckpt.OperationSuperseded,
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.save("coder", "one", `{"n": 1}`)
			ref := ckpt.RunRef{Agent: "coder", Run: "one"}
			doubt := func() {
				t.Helper()
				if _, _, err := w.client.BeginOperation(t.Context(), ref, ckpt.OperationRequest{Key: "push", Name: "push branch"}); err != nil {
					t.Fatal(err)
				}
				if _, _, err := w.client.EndOperation(t.Context(), ref, ckpt.OperationEnd{Key: "push", Status: ckpt.OperationUncertain, Error: "reset"}); err != nil {
					t.Fatal(err)
				}
			}
			drawn := func() url.Values {
				t.Helper()
				values, page := w.form("ask/resolve?" + url.Values{
					"owner": {w.owner}, "agent": {"coder"}, "run": {"one"}, "op": {pack("push")}, "status": {answer},
				}.Encode())
				if values.Get("attempt") != "1" || answer == "repeat" && !strings.Contains(page, "happen twice") {
					t.Fatalf("the form is about attempt %q: %s", values.Get("attempt"), page)
				}
				values.Set("reason", "the branch is there")
				return values
			}
			doubt()
			form, old := drawn(), drawn()
			if status, text := w.act("resolve", form); status != 200 {
				t.Errorf("the form is answered with %d: %s", status, text)
			}
			page, err := w.client.Operations(t.Context(), ref, ckpt.ListFilter{})
			if err != nil || len(page.Operations) != 1 || page.Operations[0].Status != want {
				t.Fatalf("%+v, %v", page, err)
			}
			if answer == "it_did" {
				return
			}
			doubt() // attempt 2
			old.Set("found", "it_did")
			if status, text := w.act("resolve", old); status != 409 {
				t.Errorf("the old form is answered with %d: %s", status, text)
			}
		})
	}
}

// TestTheConsoleSaysWhoGoesOn: while exec waits for the answer, the pages name it, and offer no other start. After the answer,
// a run that nobody runs stays on the first page, with the command that starts its agent.
func TestTheConsoleSaysWhoGoesOn(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]int{"exec waits": os.Getpid(), "nobody waits": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ref := ckpt.RunRef{Agent: "coder", Run: "one"}
			w.save("coder", "one", `{"n": 1}`)
			if _, _, err := w.client.BeginOperation(t.Context(), ref, ckpt.OperationRequest{Key: "push", Name: "push branch"}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := w.client.EndRun(t.Context(), ref, ckpt.EndRequest{Status: ckpt.RunInterrupted}); err != nil {
				t.Fatal(err)
			}
			plan, _, err := w.client.Resume(t.Context(), ckpt.ResumeRequest{Agent: "coder", Run: "one", Waits: waits, Command: &ckpt.Command{Argv: []string{"python3", "bot.py"}}})
			if err != nil || plan.Verdict != ckpt.VerdictAsk {
				t.Fatal(plan, err)
			}
			said, command := fmt.Sprintf("waits for an answer; exec (pid %d) will go on", waits), "ckptsidecar exec --agent coder --run one -- python3 bot.py"
			for _, path := range []string{"", "o/" + w.owner + "/coder/one"} {
				page := unescaped(w.page(path))
				if strings.Contains(page, said) != (waits != 0) || path != "" && strings.Contains(page, command) != (waits == 0) {
					t.Errorf("page %q does not say who goes on: %s", path, page)
				}
			}
			form, _ := w.form("ask/resolve?" + url.Values{
				"owner": {w.owner}, "agent": {"coder"}, "run": {"one"}, "op": {pack("push")}, "status": {"it_did_not"},
			}.Encode())
			form.Set("reason", "the branch is not there")
			if status, text := w.act("resolve", form); status != 200 {
				t.Fatalf("the form is answered with %d: %s", status, text)
			}
			page := unescaped(w.page(""))
			if strings.Count(page, "one may go on; nobody runs it") != 1-min(waits, 1) || !strings.Contains(page, "one may go on") || strings.Contains(page, command) != (waits == 0) || strings.Contains(page, "ckptsidecar resume") {
				t.Errorf("the first page does not say that the run may go on: %s", page)
			}
		})
	}
}

// TestEvidenceAtTheQuestion: the form of an uncertain operation shows what is known, and answers several that are alike.
func TestEvidenceAtTheQuestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, run := range []string{"one", "two", "three"} {
		ref := ckpt.RunRef{Agent: "coder", Run: run}
		w.save("coder", run, `{"n": 1}`)
		for i := range 4 {
			r := ckpt.StepRequest{Key: fmt.Sprint("s", i), Name: "run_tests", Status: ckpt.StepSucceeded, Result: ckpt.JSON(fmt.Sprintf(`"result %d"`, i))}
			if i == 3 {
				r.Status, r.Result, r.Error = ckpt.StepFailed, nil, "2 tests failed"
			}
			if _, _, err := w.client.BeginStep(t.Context(), ref, r); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := w.client.BeginOperation(t.Context(), ref, ckpt.OperationRequest{Key: "push", Name: "push branch", Args: ckpt.JSON(`{"branch":"fix"}`)}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.client.EndRun(t.Context(), ref, ckpt.EndRequest{Status: ckpt.RunInterrupted, Error: "connection reset by peer"}); err != nil {
			t.Fatal(err)
		}
	}
	form, page := w.form("ask/resolve?" + url.Values{
		"owner": {w.owner}, "agent": {"coder"}, "run": {"one"}, "op": {pack("push")}, "status": {"it_did_not"},
	}.Encode())
	page = unescaped(page)
	for _, want := range []string{"begun ", `Arguments: {"branch":"fix"}`, "What is known of its end: ", "run_tests failed: 2 tests failed", "run_tests succeeded: result 1", "The same for two", "The same for three"} {
		if !strings.Contains(page, want) {
			t.Errorf("the form has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "result 0") || strings.Contains(page, "The same for one") {
		t.Errorf("the form has more than the last three steps, or offers its own run: %s", page)
	}
	form.Set("reason", "the server has no such branch")
	form.Set(also+pack("two\n1\npush"), "1")
	if status, text := w.act("resolve", form); status != 200 || !strings.Contains(text, "did not take effect, and for 1 other run too.") {
		t.Fatalf("the form is answered with %d: %s", status, text)
	}
	for run, want := range map[string]ckpt.OperationStatus{"one": ckpt.OperationFailed, "two": ckpt.OperationFailed, "three": ckpt.OperationUncertain} {
		list, err := w.client.Operations(t.Context(), ckpt.RunRef{Agent: "coder", Run: run}, ckpt.ListFilter{})
		if err != nil || list.Operations[0].Status != want {
			t.Errorf("the operation of %s is %+v, %v", run, list, err)
		}
	}
}

// TestALongFormHoldsUpNoOther: only the same form, sent again, waits for the first one.
func TestALongFormHoldsUpNoOther(t *testing.T) {
	x := &session{}
	long, other := url.Values{"key": {"1"}}, url.Values{"key": {"2"}}
	began, end := make(chan struct{}), make(chan struct{})
	answers := make(chan done, 2)
	act := func() (done, error) {
		close(began)
		<-end
		return done{said: "long"}, nil
	}
	go func() {
		result, _ := x.once("prune", long, act)
		answers <- result
	}()
	<-began
	if result, err := x.once("answer", other, func() (done, error) { return done{said: "other"}, nil }); err != nil || result.said != "other" {
		t.Error(result, err)
	}
	again := func() (done, error) { return done{said: "again"}, nil }
	if result, err := x.once("answer", other, again); err != nil || result.said != "other" {
		t.Error(result, err)
	}
	go func() {
		result, _ := x.once("prune", long, func() (done, error) { return done{said: "twice"}, nil })
		answers <- result
	}()
	close(end)
	for range 2 {
		if result := <-answers; result.said != "long" {
			t.Error(result)
		}
	}
}
