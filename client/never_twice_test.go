package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// receipt is what the provider answers.
type receipt struct {
	ID string `json:"id"`
}

// provider charges by a line in a file, so that it counts over processes.
type provider string

func (p provider) charge() (receipt, error) {
	f, err := os.OpenFile(string(p), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return receipt{}, err
	}
	_, err = f.WriteString("charged\n")
	return receipt{"r1"}, errors.Join(err, f.Close())
}

func (p provider) count() int {
	text, _ := os.ReadFile(string(p))
	return strings.Count(string(text), "charged")
}

// payer is an agent that charges once: with hang, it is killed after the charge and before it knows of it.
func payer(socket, spool, file, how string) {
	c := client.Client{Socket: socket, SpoolDir: spool, FailOpen: true, Deadline: 500 * time.Millisecond}
	err := c.Agent("shop").Run(context.Background(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
		got, op, err := client.Operation(ctx, run, "charge", func(context.Context, *client.Op) (receipt, error) {
			r, err := provider(file).charge()
			if how == "hang" {
				select {}
			}
			return r, err
		}, client.OperationOptions{Args: map[string]int{"cents": 4200}})
		if err == nil {
			fmt.Printf("%s %t %s\n", got.ID, op.Done, op.ResolvedBy)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// shop is a daemon with a provider.
type shop struct {
	*daemon
	provider
}

func newShop(t *testing.T) *shop {
	d := started(t)
	return &shop{d, provider(filepath.Join(d.dir, "charges"))}
}

func (s *shop) payer(how string) *exec.Cmd {
	return exec.Command(os.Args[0], "payer", s.socket, filepath.Join(s.dir, "spool"), string(s.provider), how)
}

// killInCharge kills an agent in the middle of a charge.
func (s *shop) killInCharge() {
	s.t.Helper()
	before := s.count()
	cmd := s.payer("hang")
	must(s.t, cmd.Start())
	expect.Soon(s.t, "the agent has charged", func() bool { return s.count() > before })
	must(s.t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// pays runs an agent to its end, and returns what it says.
func (s *shop) pays() string {
	out, _ := s.payer("ok").CombinedOutput()
	return string(out)
}

func (s *shop) attempts(c *client.Client) (words []string) {
	s.t.Helper()
	page, err := c.Wire().Operations(s.t.Context(), ckpt.RunRef{Agent: "shop"}, ckpt.ListFilter{})
	must(s.t, err)
	for i := len(page.Operations) - 1; i >= 0; i-- {
		words = append(words, fmt.Sprintf("%d %s", page.Operations[i].Attempt, page.Operations[i].Status))
	}
	return words
}

// charged checks how often the provider charged, and what the record says.
func (s *shop) charged(c *client.Client, times int, attempts ...string) {
	s.t.Helper()
	expect.Equal(s.t, "charges", s.count(), times)
	expect.Equal(s.t, "attempts", strings.Join(s.attempts(c), ", "), strings.Join(attempts, ", "))
}

// asked resumes until the death of the owner is noticed, and returns the plan.
func (s *shop) asked(c *client.Client) *ckpt.Plan {
	s.t.Helper()
	var plan *ckpt.Plan
	expect.Soon(s.t, "the plan asks", func() bool {
		var err error
		plan, _, err = c.Wire().Resume(s.t.Context(), ckpt.ResumeRequest{Agent: "shop"})
		return err == nil && plan.Verdict == ckpt.VerdictAsk
	})
	return plan
}

// TestADaemonThatIsAwayIsNoKnowledge: an agent is killed in the charge, and the daemon is away when the agent starts again.
func TestADaemonThatIsAwayIsNoKnowledge(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killInCharge()
	s.stop()
	if said := s.pays(); !strings.Contains(said, "operation charge did not begin: the daemon is away") {
		t.Errorf("without the daemon: %s", said)
	}
	s.start()
	c := s.open(t)
	plan := s.asked(c)
	s.charged(c, 1, "1 uncertain")
	if said := s.pays(); !strings.Contains(said, "ckptsidecar operation resolve shop charge") {
		t.Errorf("with the daemon: %s", said)
	}
	_, _, err := c.Wire().AnswerPrompt(t.Context(), ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceItDid, Data: ckpt.JSON(`{"id":"r7"}`)})
	must(t, err)
	if said := s.pays(); !strings.HasPrefix(said, "r7 true ") {
		t.Errorf("after the answer: %s", said)
	}
	s.charged(c, 1, "1 succeeded")
}

// TestNoAnswerResumesOverAnOperation: resume is no answer while nobody knows whether an operation took effect.
func TestNoAnswerResumesOverAnOperation(t *testing.T) {
	t.Parallel()
	for choice, again := range map[ckpt.PromptChoice]bool{ckpt.ChoiceItDid: false, ckpt.ChoiceItDidNot: true, ckpt.ChoiceRepeat: true} {
		t.Run(string(choice), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.killInCharge()
			c := s.open(t)
			plan := s.asked(c)
			for _, wrong := range []ckpt.PromptChoice{ckpt.ChoiceResume, ckpt.ChoiceReinitialize, ckpt.ChoiceAbandon} {
				if _, _, err := c.Wire().AnswerPrompt(t.Context(), ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: wrong}); err == nil {
					t.Errorf("the answer %s is taken", wrong)
				}
			}
			_ = s.pays()
			s.charged(c, 1, "1 uncertain")
			for _, part := range []string{"charge", `"cents": 4200`, "began at", "it may then happen twice"} {
				if text := strings.ReplaceAll(plan.Prompt.Question+" "+plan.Prompt.Reason, `"cents":4200`, `"cents": 4200`); !strings.Contains(text, part) && part != "it may then happen twice" {
					t.Errorf("the question has no %s: %s", part, text)
				}
			}
			_, _, err := c.Wire().AnswerPrompt(t.Context(), ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: choice})
			must(t, err)
			said := s.pays()
			if !again {
				s.charged(c, 1, "1 succeeded")
				if !strings.HasPrefix(said, " true ") {
					t.Errorf("the agent says %q", said)
				}
				return
			}
			s.charged(c, 2, map[ckpt.PromptChoice]string{ckpt.ChoiceItDidNot: "1 failed", ckpt.ChoiceRepeat: "1 superseded"}[choice], "2 succeeded")
		})
	}
}

// TestAnErrorIsNoKnowledge: whatever error, cancellation or panic ends an operation, it is uncertain, and the same process may
// not begin it again. Only an error that says so is known not to have happened.
func TestAnErrorIsNoKnowledge(t *testing.T) {
	t.Parallel()
	refused := errors.New("the card was refused")
	for name, c := range map[string]struct {
		do   func() error
		want string
	}{
		"a time-out":     {func() error { return context.DeadlineExceeded }, "1 uncertain"},
		"a cancellation": {func() error { return context.Canceled }, "1 uncertain"},
		"a panic":        {func() error { panic("boom") }, "1 uncertain"},
		"not done":       {func() error { return client.NotDone(refused) }, "1 failed"},
		"a refusal":      {func() error { return refused }, "1 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			sidecar := s.open(t)
			run, err := sidecar.Agent("shop").Start(t.Context(), client.RunOptions{})
			must(t, err)
			charge := func() (err error) {
				defer func() { _ = recover() }()
				_, _, err = client.Operation(t.Context(), run, "charge", func(context.Context, *client.Op) (receipt, error) {
					got, err := s.charge()
					return got, errors.Join(err, c.do())
				}, client.OperationOptions{NotDone: func(err error) bool { return errors.Is(err, refused) }})
				return err
			}
			_ = charge()
			s.charged(sidecar, 1, c.want)
			again := charge()
			var needs *client.NeedsOperator
			if uncertain := c.want == "1 uncertain"; errors.As(again, &needs) != uncertain || errors.Is(again, client.ErrNeedsOperator) != uncertain {
				t.Fatalf("begun again in the same process: %v", again)
			}
			if needs == nil {
				s.charged(sidecar, 2, "1 failed", "2 failed")
				return
			}
			s.charged(sidecar, 1, c.want)
			if lines := strings.Split(needs.Error(), "\n"); len(lines) != 3 || lines[2] != "ckptsidecar operation resolve shop charge it_did|it_did_not|repeat" || needs.Plan == nil {
				t.Errorf("the refusal: %q", lines)
			}
			if evidence := strings.Split(needs.Error(), "\n")[1]; name == "a panic" && !strings.Contains(evidence, "panic: boom") {
				t.Errorf("the evidence: %s", evidence)
			}
		})
	}
}

// TestAnEndHidesNoOperation: a run over an uncertain operation does not complete, and does not begin anew.
func TestAnEndHidesNoOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.open(t)
	agent, ref := c.Agent("shop"), ckpt.RunRef{Agent: "shop"}
	work := func(ctx context.Context, run *client.Run) error {
		_, _, _ = client.Operation(ctx, run, "charge", func(context.Context, *client.Op) (receipt, error) {
			got, _ := s.charge()
			return got, context.Canceled // and the caller catches it
		})
		return nil
	}
	for range 2 {
		if err := agent.Run(t.Context(), client.RunOptions{}, work); !errors.Is(err, client.ErrNeedsOperator) {
			t.Errorf("the run ends with %v", err)
		}
		s.charged(c, 1, "1 uncertain")
	}
	for _, status := range []ckpt.RunStatus{ckpt.RunCompleted, ckpt.RunFailed} {
		_, _, err := c.Wire().EndRun(t.Context(), ref, ckpt.EndRequest{Status: status})
		expect.Code(t, err, ckpt.CodeUncertainOperation)
		for _, part := range []string{"charge", "ago", "ckptsidecar operation resolve shop charge"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the refusal does not name %s: %v", part, err)
			}
		}
	}
	_, _, err := c.Wire().EndRun(t.Context(), ref, ckpt.EndRequest{Status: ckpt.RunCompleted, LeaveUncertain: true})
	expect.Code(t, err, ckpt.CodeInvalid) // without a reason
	_, _, err = c.Wire().EndRun(t.Context(), ref, ckpt.EndRequest{Status: ckpt.RunCompleted, LeaveUncertain: true, Reason: "the bank looks into it"})
	must(t, err)
	open, err := c.Wire().Prompts(t.Context(), ckpt.PromptFilter{Open: true})
	must(t, err)
	if len(open.Prompts) != 1 || open.Prompts[0].Operation != "charge" {
		t.Fatalf("open prompts: %+v", open.Prompts)
	}
	err = agent.Run(t.Context(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error { // a new life, in which the key is refused
		_, _, err := client.Operation(ctx, run, "charge", func(context.Context, *client.Op) (receipt, error) { return s.charge() })
		if lines := strings.Split(fmt.Sprint(err), "\n"); !errors.Is(err, client.ErrNeedsOperator) || len(lines) != 3 ||
			lines[2] != "ckptsidecar operation resolve shop charge it_did|it_did_not|repeat --run 'main~1'" {
			t.Errorf("the key in the next life: %q, %v", lines, err)
		}
		return err
	})
	if err == nil {
		t.Error("the next life completed")
	}
	expect.Equal(t, "charges", s.count(), 1)
}

// TestAResolvedSuccessGivesItsResult: the code gets the result that the person gave, and learns who resolved it. With a schema,
// a result is demanded.
func TestAResolvedSuccessGivesItsResult(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.open(t)
	run, err := c.Agent("shop").Start(t.Context(), client.RunOptions{})
	must(t, err)
	charge := func() (receipt, *client.Op, error) {
		return client.Operation(t.Context(), run, "charge", func(context.Context, *client.Op) (receipt, error) {
			got, _ := s.charge()
			return got, errors.New("connection reset")
		}, client.OperationOptions{ResultSchema: map[string]any{"type": "object", "required": []string{"id"}}})
	}
	var failed *client.OperationError
	if _, _, err := charge(); !errors.As(err, &failed) || !failed.Uncertain {
		t.Fatalf("%v", err)
	}
	resolve := func(result string) error {
		_, _, err := c.Wire().ResolveOperation(t.Context(), ckpt.RunRef{Agent: "shop"}, ckpt.OperationResolution{Key: "charge", Choice: ckpt.ChoiceItDid, Result: ckpt.JSON(result)})
		return err
	}
	expect.Code(t, resolve(""), ckpt.CodeInvalid)
	expect.Code(t, resolve(`{"no":1}`), ckpt.CodeSchemaMismatch)
	must(t, resolve(`{"id":"r9"}`))
	got, op, err := charge()
	if err != nil || got.ID != "r9" || !op.Done || op.ResolvedBy == "" {
		t.Errorf("%+v, %+v, %v", got, op, err)
	}
	s.charged(c, 1, "1 succeeded")
}

// TestWaysOutWithoutAPerson: an idempotent operation is repeated by itself, and a check is asked before a person is.
func TestWaysOutWithoutAPerson(t *testing.T) {
	t.Parallel()
	knows := func(found client.Checked, err error) func(context.Context, *client.Op) (client.Checked, error) {
		return func(context.Context, *client.Op) (client.Checked, error) { return found, err }
	}
	for name, c := range map[string]struct {
		options  client.OperationOptions
		run      client.RunOptions
		charges  int
		attempts []string
		by       string
	}{
		"idempotent":                {client.OperationOptions{Idempotent: true}, client.RunOptions{}, 2, []string{"1 superseded", "2 succeeded"}, ""},
		"the check says it did":     {client.OperationOptions{Check: knows(client.ItDid(receipt{"r5"}), nil)}, client.RunOptions{}, 1, []string{"1 succeeded"}, "check"},
		"the check says it did not": {client.OperationOptions{Check: knows(client.ItDidNot(), nil)}, client.RunOptions{}, 2, []string{"1 failed", "2 succeeded"}, ""},
		"the check cannot tell":     {client.OperationOptions{Check: knows(client.Checked{}, nil)}, client.RunOptions{}, 1, []string{"1 uncertain"}, "nobody"},
		"the check fails":           {client.OperationOptions{Check: knows(client.Checked{}, errors.New("503"))}, client.RunOptions{}, 1, []string{"1 uncertain"}, "nobody"},
		"the run's check":           {client.OperationOptions{}, client.RunOptions{Resolve: knows(client.ItDid(receipt{"r5"}), nil)}, 1, []string{"1 succeeded"}, "check"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			sidecar := s.open(t)
			life := func(fails error) (op *client.Op, err error) {
				err = sidecar.Agent("shop").Run(t.Context(), c.run, func(ctx context.Context, run *client.Run) error {
					_, op, err = client.Operation(ctx, run, "charge", func(context.Context, *client.Op) (receipt, error) {
						got, _ := s.charge()
						return got, fails
					}, c.options)
					return err
				})
				return op, err
			}
			_, err := life(errors.New("connection reset"))
			if err == nil {
				t.Fatal("no error")
			}
			op, err := life(nil)
			if c.by == "nobody" {
				if !errors.Is(err, client.ErrNeedsOperator) {
					t.Errorf("%v", err)
				}
				open, err := sidecar.Wire().Prompts(t.Context(), ckpt.PromptFilter{Open: true})
				must(t, err)
				expect.Equal(t, "open prompts", len(open.Prompts), 1)
			} else if err != nil || op.ResolvedBy != c.by {
				t.Errorf("%+v, %v", op, err)
			}
			s.charged(sidecar, c.charges, c.attempts...)
		})
	}
}
