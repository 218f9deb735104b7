package resume

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// invent makes random facts, so that every combination occurs.
func invent(r *rand.Rand) (*Facts, map[string]bool) {
	f := &Facts{
		Now: noon, Exists: r.IntN(20) > 0, Autoresume: maybe(r), OwnerAlive: r.IntN(4) == 0, CallerOwns: r.IntN(4) == 0,
		Force: r.IntN(4) == 0, DryRun: r.IntN(4) == 0, LastEvent: r.Int64N(9),
		Run: ckpt.Run{Agent: "coder", Run: "main", PID: r.IntN(2) * 77, Epoch: r.Int64N(9), Status: pick(r,
			ckpt.RunRunning, ckpt.RunRunning, ckpt.RunSuspended, ckpt.RunAwaitingContinuation, ckpt.RunInterrupted, ckpt.RunTimedOut, ckpt.RunCompleted, ckpt.RunFailed)},
	}
	if maybe(r) {
		f.Interrupted = past(r)
	}
	damaged := map[string]bool{}
	all := map[string]*ckpt.Checkpoint{}
	top := r.Int64N(7)
	for seq := top; seq > 0; seq-- {
		c := FactCheckpoint{ID: fmt.Sprint("c", seq), Seq: seq, Kind: pick(r, ckpt.Kinds...), Suspect: maybe(r), At: past(r)}
		f.Checkpoints = append(f.Checkpoints, c)
		damaged[c.ID] = maybe(r)
		all[c.ID] = &ckpt.Checkpoint{ID: c.ID, Run: "main", Seq: seq, Suspect: c.Suspect, ContentType: pick(r, "application/json", "text/plain"), State: []byte(`{"a":1}`)}
	}
	for i := range r.IntN(6) {
		f.Steps = append(f.Steps, ckpt.Step{Key: fmt.Sprint("s", i), Name: "n", StartedAt: ckpt.At(past(r)), EndedAt: ckpt.At(past(r)),
			Status: pick(r, ckpt.StepStarted, ckpt.StepSucceeded, ckpt.StepFailed, ckpt.StepInterrupted)})
		f.StepsAfter = append(f.StepsAfter, r.Int64N(top+1))
	}
	for i := range r.IntN(3) {
		o := ckpt.Operation{Key: fmt.Sprint("o", i), Status: pick(r, ckpt.OperationOpen, ckpt.OperationUncertain), StartedAt: ckpt.At(past(r))}
		if o.Status == ckpt.OperationUncertain {
			o.EndedAt = ckpt.At(past(r))
		}
		if maybe(r) {
			o.Idempotent, o.SelfCheck, o.Left, o.Prompt = maybe(r), maybe(r), maybe(r), pick(r, "", ckpt.Ref("p9"))
		}
		f.Operations = append(f.Operations, o)
	}
	if maybe(r) {
		f.Prompt = &ckpt.Prompt{ID: "p", At: ckpt.At(past(r)), Checkpoint: ckpt.Ref(fmt.Sprint("c", r.Int64N(7))), Choice: pick(r, "", ckpt.Ref(ckpt.ChoiceResume))}
		if f.Prompt.Choice != "" {
			f.Prompt.AnsweredAt = ckpt.At(noon)
		}
	}
	f.Load = func(id string) (*ckpt.Checkpoint, error) {
		if damaged[id] {
			return nil, ckpt.Errorf(ckpt.CodeCorrupt, "it is damaged")
		}
		return all[id], nil
	}
	return f, damaged
}

func maybe(r *rand.Rand) bool             { return r.IntN(2) == 0 }
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
func past(r *rand.Rand) time.Time         { return noon.Add(-time.Duration(r.IntN(8)) * time.Minute) }

func TestPlansOfAllMixtures(t *testing.T) {
	seen := map[ckpt.ResumeVerdict]int{}
	for seed := range uint64(30000) {
		f, damaged := invent(rand.New(rand.NewPCG(seed, 1)))
		p, err := Make(f)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		seen[p.Verdict]++
		for _, broken := range []string{
			wrongCheckpoint(f, p, damaged), wrongVerdict(f, p), wrongSteps(p), wrongForm(p),
		} {
			if broken != "" {
				t.Fatalf("seed %d: %s\n%s", seed, broken, answer(p, nil))
			}
		}
	}
	for _, v := range []ckpt.ResumeVerdict{ckpt.VerdictFresh, ckpt.VerdictResume, ckpt.VerdictRepair, ckpt.VerdictAsk, ckpt.VerdictUnsafe} {
		if seen[v] < 100 {
			t.Errorf("only %d plans said %s: the mixtures are too much alike", seen[v], v)
		}
	}
}

// want returns the checkpoint that the promise requires, found in the simplest
// way.
func want(f *Facts, damaged map[string]bool) string {
	for _, suspect := range []bool{false, true} {
		for _, c := range f.Checkpoints {
			if c.Suspect == suspect && !damaged[c.ID] {
				return c.ID
			}
		}
	}
	return ""
}

func wrongCheckpoint(f *Facts, p *ckpt.Plan, damaged map[string]bool) string {
	best := want(f, damaged)
	if p.Checkpoint == nil {
		switch {
		case p.Verdict == ckpt.VerdictFresh, p.Verdict == ckpt.VerdictUnsafe, !f.Run.Status.Resumable(), best == "" && len(f.Checkpoints) == 0:
			return ""
		}
		return "there is a checkpoint to load, and none is given"
	}
	switch {
	case p.Verdict == ckpt.VerdictUnsafe, p.Verdict == ckpt.VerdictFresh:
		return "a state is served"
	case damaged[p.Checkpoint.ID]:
		return "a damaged checkpoint is served"
	case p.Checkpoint.ID != best:
		return "the checkpoint should be " + best
	case p.Checkpoint.Suspect && p.Verdict != ckpt.VerdictAsk && (f.Prompt == nil || f.Prompt.Choice == "" || string(f.Prompt.Checkpoint) != best):
		return "a suspect checkpoint is resumed and nobody agreed to it"
	}
	passed := 0
	for _, c := range f.Checkpoints {
		if c.Seq > p.Checkpoint.Seq {
			passed++
		}
	}
	if len(p.Skipped) < passed {
		return "a newer checkpoint is passed over in silence"
	}
	for _, s := range p.Skipped {
		if s.ID == best || !strings.HasPrefix(s.Reason, "damaged: ") && !strings.HasPrefix(s.Reason, "suspect: ") {
			return "skipped without a good reason: " + s.ID
		}
	}
	return ""
}

func wrongVerdict(f *Facts, p *ckpt.Plan) string {
	over := !f.Exists || !f.Run.Status.Resumable()
	if f.Exists && over && slices.ContainsFunc(f.Operations, func(o ckpt.Operation) bool { return !o.Left }) {
		if p.Verdict != ckpt.VerdictAsk || len(p.UncertainOperations) != len(f.Operations) {
			return "a run begins anew over an uncertain operation"
		}
		return ""
	}
	owned := f.OwnerAlive && !f.CallerOwns && !f.Force && !over && f.Run.Status != ckpt.RunSuspended &&
		f.Run.Status != ckpt.RunAwaitingContinuation && (f.Run.Status != ckpt.RunInterrupted || !f.Interrupted.IsZero())
	lost := !over && len(f.Checkpoints) > 0 && p.Checkpoint == nil
	switch {
	case over != (p.Verdict == ckpt.VerdictFresh) && begun(f) && !owned:
		return "fresh if and only if there is nothing to resume"
	case (owned || lost) != (p.Verdict == ckpt.VerdictUnsafe):
		return "unsafe if and only if the owner lives or nothing is intact"
	case over || owned || lost:
		return ""
	}
	yes := f.Prompt != nil && f.Prompt.Choice == ckpt.Ref(ckpt.ChoiceResume)
	ask := p.Checkpoint != nil && p.Checkpoint.Suspect && !(yes && string(f.Prompt.Checkpoint) == p.Checkpoint.ID)
	for _, o := range f.Operations { // no answer to a decision resolves it
		ask = ask || !o.Left && !o.Idempotent && (!o.SelfCheck || o.Prompt != "")
	}
	broke := f.Run.Status == ckpt.RunTimedOut || !f.Interrupted.IsZero() && (f.Run.Status == ckpt.RunInterrupted || f.Run.Status == ckpt.RunRunning)
	ask = ask || begun(f) && !f.Autoresume && broke && !(yes && !f.Prompt.At.Before(f.Interrupted))
	if ask != (p.Verdict == ckpt.VerdictAsk) {
		return fmt.Sprintf("ask should be %v", ask)
	}
	if clean := len(p.Skipped)+len(p.InterruptedSteps)+len(p.UncertainOperations) == 0; p.Verdict == ckpt.VerdictResume && !clean {
		return "resume, although something must be repaired"
	}
	if p.Prompt != nil && (p.Verdict != ckpt.VerdictAsk || p.Prompt.Choice != "") {
		return "a prompt that nobody waits for"
	}
	if p.Verdict != ckpt.VerdictFresh && len(p.UncertainOperations) != len(f.Operations) {
		return "an operation is not told of"
	}
	return ""
}

func wrongSteps(p *ckpt.Plan) string {
	for _, s := range p.InterruptedSteps {
		var a struct {
			Type      string `json:"type"`
			ToolUseID string `json:"tool_use_id"`
			IsError   bool   `json:"is_error"`
			Content   string `json:"content"`
		}
		var o struct {
			Role       string `json:"role"`
			ToolCallID string `json:"tool_call_id"`
			Content    string `json:"content"`
		}
		if err := errors.Join(json.Unmarshal(s.SyntheticResult.Anthropic, &a), json.Unmarshal(s.SyntheticResult.OpenAI, &o)); err != nil {
			return err.Error()
		}
		text := s.SyntheticResult.Text
		if a.Type != "tool_result" || a.ToolUseID != s.Key || !a.IsError || a.Content != text || o.Role != "tool" || o.ToolCallID != s.Key || o.Content != text || text == "" {
			return "an interrupted step lacks a result: " + s.Key
		}
	}
	return ""
}

func wrongForm(p *ckpt.Plan) string {
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(text, &lists); err != nil {
		return err.Error()
	}
	for _, name := range []string{"reasons", "completed_steps", "interrupted_steps", "uncertain_operations", "skipped"} {
		if lists[name][0] != '[' {
			return name + " is no list"
		}
	}
	if len(p.Reasons) == 0 {
		return "no reasons"
	}
	for _, r := range p.Reasons {
		if !strings.HasSuffix(r, ".") || strings.Contains(r, "  ") || strings.Contains(r, "%!") || strings.Contains(r, "0001-") {
			return "no plain sentence: " + r
		}
	}
	return ""
}

// TestReasonsHoldNoPayloads: many people read reasons, but the contents of
// steps and states are only for their owner.
func TestReasonsHoldNoPayloads(t *testing.T) {
	s := scene1(t, `
run interrupted
interrupted 5m
checkpoint 3 routine 6m suspect state='{"key":"hunter2"}' source='hunter2()' executed=0
step call_1 search succeeded after=3 result='"hunter2"'
step call_2 search interrupted after=3 args='"hunter2"'
`)
	p, err := Make(&s.Facts)
	if err != nil {
		t.Fatal(err)
	}
	if text := Question(p) + Reason(p); strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

func scene1(t testing.TB, text string) *scene {
	t.Helper()
	s, err := parseScene(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLoadThatGivesSomethingElse(t *testing.T) {
	for _, given := range []*ckpt.Checkpoint{nil, {ID: "c4"}} {
		s := scene1(t, "run interrupted\ninterrupted 5m\ncheckpoint 3 routine 6m")
		s.Load = func(string) (*ckpt.Checkpoint, error) { return given, nil }
		if p, err := Make(&s.Facts); ckpt.CodeOf(err) != ckpt.CodeInternal {
			t.Errorf("%v, %v", p, err)
		}
	}
}

// TestOnlyWhatIsNeededIsLoaded: only the newest intact state is read, because
// states are large.
func TestOnlyWhatIsNeededIsLoaded(t *testing.T) {
	s := scene1(t, "run interrupted\ninterrupted 5m\ncheckpoint 4 routine 5m suspect\ncheckpoint 3 routine 6m\ncheckpoint 2 routine 7m damaged")
	load, asked := s.Load, ""
	s.Load = func(id string) (*ckpt.Checkpoint, error) { asked += id; return load(id) }
	if _, err := Make(&s.Facts); err != nil || asked != "c3" {
		t.Errorf("loaded %q, %v", asked, err)
	}
}

func TestFactsAreLeftAsTheyAre(t *testing.T) {
	s := scene1(t, "run running\ncheckpoint 4 routine 5m\noperation o send open began=4m")
	if p, err := Make(&s.Facts); err != nil || p.UncertainOperations[0].Status != ckpt.OperationUncertain || s.Operations[0].Status != ckpt.OperationOpen {
		t.Errorf("%v, %v, %v", p, err, s.Operations)
	}
}

// TestAPromptOfTheSameMillisecondCounts: times in the database are in
// milliseconds, but the store may pass finer ones.
func TestAPromptOfTheSameMillisecondCounts(t *testing.T) {
	s := scene1(t, "run interrupted\nautoresume off\ncheckpoint 4 routine 5m\nprompt p1 made=1m choice=resume answered=1m")
	s.Interrupted = s.Prompt.At.Add(999 * time.Microsecond)
	if p, err := Make(&s.Facts); err != nil || p.Verdict != ckpt.VerdictResume {
		t.Errorf("%v, %v", p, err)
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "under a second", 59 * time.Second: "59 s", time.Minute: "1 min", time.Hour: "1 h", 90 * time.Minute: "1 h 30 min",
		ckpt.Day: "1 d", 50 * time.Hour: "2 d 2 h",
	} {
		if got := ckpt.Age(d); got != want {
			t.Errorf("%s is %q, not %q", d, got, want)
		}
	}
	m := maker{f: &Facts{Now: noon}}
	if got := m.when(noon.Add(time.Hour)); strings.Contains(got, "ago") {
		t.Errorf("the future is %q", got)
	}
}

// TestAReasonOutlivesItsPlan: the reason of a prompt is read hours later, so it has no ages. The plan for it was a dry
// run, but the prompt is real.
func TestAReasonOutlivesItsPlan(t *testing.T) {
	s := scene1(t, "run interrupted\ndry run\ncheckpoint 4 routine 5m\noperation deploy release uncertain began=12m ended=10m checkpoint=c5 attempt=2")
	p, err := Make(&s.Facts)
	if err != nil || p.Verdict != ckpt.VerdictAsk || !strings.Contains(strings.Join(p.Reasons, " "), " ago)") {
		t.Fatalf("%+v, %v", p, err)
	}
	if got := Reason(p); strings.Contains(got, " ago") || strings.Contains(got, "dry run") || !strings.Contains(got, "saved at 20") {
		t.Errorf("the reason is %q", got)
	}
}

func TestNobodyNamedTheRun(t *testing.T) {
	p, err := Make(&Facts{})
	if err != nil || p.Verdict != ckpt.VerdictFresh {
		t.Fatalf("%v, %v", p, err)
	}
	if got := Reason(p); got != "There is no such run yet, so there is nothing to resume: start from the beginning." {
		t.Error(got)
	}
}
