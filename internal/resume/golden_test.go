package resume

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// noon is the present time of the golden files.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// mark begins the part of a golden file that -update writes.
const mark = "--- answer\n"

// scene is the content of the upper part of a golden file. Times are ages.
//
//	run interrupted epoch=3 attempt=2 pid=4242 ended=7m goon='do more' session=s-1 spent=61000 fork=f1 event=12
//	no run
//	interrupted 7m
//	autoresume off
//	owner alive
//	owner frozen
//	newest 7
//	claimed alpha
//	claimed alpha released
//	claimed alpha 3s
//	given up 2
//	caller owns
//	force
//	dry run
//	checkpoint 5 routine 2m suspect damaged unreadable of=otherrun type=text/plain state='{"a":1}' source='a()\nb()\n' executed=4
//	step call_1 search succeeded after=5 began=3m ended=2m result='{"n":1}' args='{}'
//	operation deploy release uncertain began=7m ended=6m checkpoint=c5 attempt=1
//	finding repeat since=3 until=5 made=6m says='search was called 5 times.'
//	question q1 seq=5 made=6m answered=5m choice=yes by=uid:0 data='{"env":"prod"}'
//	prompt p1 made=6m checkpoint=c5 choice=resume answered=5m by=uid:0
//
// Checkpoint 5 has the id c5. They are listed newest first.
type scene struct {
	Facts
	states map[string]*ckpt.Checkpoint
	errs   map[string]error
}

func parseScene(text string) (*scene, error) {
	s := &scene{
		Facts: Facts{
			Now: noon, Exists: true, Autoresume: true,
			Run: ckpt.Run{Agent: "coder", Run: "main", Status: ckpt.RunRunning, Epoch: 1, Attempt: 1, UpdatedAt: ckpt.At(noon.Add(-time.Minute))},
		},
		states: map[string]*ckpt.Checkpoint{},
		errs:   map[string]error{},
	}
	s.Load = func(id string) (*ckpt.Checkpoint, error) { return s.states[id], s.errs[id] }
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := splitWords(line)
		if len(words) == 0 {
			continue
		}
		if err := s.take(words); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return s, nil
}

// splitWords splits at blanks that are not inside single quotes.
func splitWords(line string) []string {
	quoted := false
	words := strings.FieldsFunc(line, func(r rune) bool {
		if r == '\'' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
	for i := range words {
		words[i] = strings.ReplaceAll(strings.ReplaceAll(words[i], "'", ""), `\n`, "\n")
	}
	return words
}

func (s *scene) take(words []string) error {
	switch words[0] + " " + strings.Join(words[1:min(2, len(words))], "") {
	case "no run":
		s.Exists, s.Run = false, ckpt.Run{Agent: s.Run.Agent, Run: s.Run.Run}
		return nil
	case "autoresume off":
		s.Autoresume = false
		return nil
	case "owner alive":
		s.OwnerAlive, s.OwnerSeen = true, true
		return nil
	case "owner unseen":
		s.OwnerAlive = true
		return nil
	case "owner frozen":
		s.OwnerStands = true
		return nil
	case "caller owns":
		s.CallerOwns = true
		return nil
	case "force ":
		s.Force = true
		return nil
	case "dry run":
		s.DryRun = true
		return nil
	}
	switch words[0] {
	case "run":
		return s.takeRun(words[1:])
	case "interrupted":
		at, err := ago(words[1])
		s.Interrupted = at.Time
		return err
	case "claimed":
		return s.takeClaim(words[1:])
	case "checkpoint":
		return s.takeCheckpoint(words[1:])
	case "newest":
		return numbers(words[1:], &s.LastSeq)
	case "given":
		var n int64
		err := numbers(words[2:], &n)
		s.GivenUp = int(n)
		return err
	case "step":
		return s.takeStep(words[1:])
	case "operation":
		return s.takeOperation(words[1:])
	case "prompt":
		return s.takePrompt(words[1:])
	case "question":
		return s.takeQuestion(words[1:])
	case "finding":
		return s.takeFinding(words[1:])
	}
	return fmt.Errorf("what is %s?", words[0])
}

func numbers(words []string, to *int64) (err error) {
	*to, err = strconv.ParseInt(words[0], 10, 64)
	return err
}

func ago(s string) (ckpt.Time, error) {
	d, err := ckpt.ParseDuration(s)
	return ckpt.At(noon.Add(-time.Duration(d))), err
}

func pairs(words []string, take func(key, value string) error) error {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		if err := take(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) takeRun(words []string) error {
	s.Run.Status = ckpt.RunStatus(words[0])
	return pairs(words[1:], func(key, value string) (err error) {
		switch key {
		case "epoch":
			s.Run.Epoch, err = strconv.ParseInt(value, 10, 64)
		case "attempt":
			s.Run.Attempt, err = strconv.ParseInt(value, 10, 64)
		case "event":
			s.LastEvent, err = strconv.ParseInt(value, 10, 64)
		case "spent":
			s.Run.AccumulatedMS, err = strconv.ParseInt(value, 10, 64)
		case "pid":
			s.Run.PID, err = strconv.Atoi(value)
		case "ended":
			s.Run.EndedAt, err = ago(value)
		case "goon":
			s.Run.ContinuationPrompt = ckpt.Ref(value)
		case "session":
			s.Run.ExternalSession = ckpt.Ref(value)
		case "fork":
			s.Run.ForkedFrom = ckpt.Ref(value)
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		return err
	})
}

func (s *scene) takeClaim(words []string) error {
	s.Claimed = &ckpt.PlanFleet{FromHost: words[0], Term: 2, AcknowledgedTo: 4, StrandPossible: true}
	switch {
	case len(words) == 1:
		return nil
	case words[1] == "released":
		s.Claimed.StrandPossible = false
		return nil
	}
	lost, err := ckpt.ParseDuration(words[1])
	s.Claimed.LostAtMost = lost
	return err
}

func (s *scene) takeCheckpoint(words []string) error {
	seq, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return err
	}
	at, err := ago(words[2])
	if err != nil {
		return err
	}
	c := &ckpt.Checkpoint{
		ID: "c" + words[0], Agent: "coder", Run: "main", Seq: seq, Kind: ckpt.Kind(words[1]), CreatedAt: at,
		ContentType: ckpt.ContentTypeJSON, Metadata: json.RawMessage("{}"), State: []byte(`{"seq":` + words[0] + `}`),
	}
	err = pairs(words[3:], func(key, value string) (err error) {
		switch key {
		case "suspect":
			c.Suspect = true
		case "damaged":
			s.errs[c.ID] = ckpt.Wrap(ckpt.CodeCorrupt, errors.New("its hash does not match"), "checkpoint %s is damaged and is not served", c.ID)
		case "unreadable":
			s.errs[c.ID] = ckpt.Errorf(ckpt.CodeBusy, "the database is locked")
		case "of":
			c.Run = value
		case "type":
			c.ContentType = value
		case "state":
			c.State = []byte(value)
		case "source":
			c.Program = &ckpt.Program{Source: value}
		case "executed":
			c.Program.Executed, err = strconv.ParseInt(value, 10, 64)
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		return err
	})
	c.Size = int64(len(c.State))
	s.states[c.ID] = c
	s.Checkpoints = append(s.Checkpoints, FactCheckpoint{ID: c.ID, Seq: seq, Kind: c.Kind, Suspect: c.Suspect, At: at.Time})
	return err
}

func (s *scene) takeFinding(words []string) error {
	f := ckpt.Finding{ID: "f-" + words[0], Rule: words[0], Severity: ckpt.SeverityCritical}
	err := pairs(words[1:], func(key, value string) (err error) {
		var seq int64
		switch key {
		case "made":
			f.At, err = ago(value)
		case "since":
			seq, err = strconv.ParseInt(value, 10, 64)
			f.SinceSeq = &seq
		case "until":
			seq, err = strconv.ParseInt(value, 10, 64)
			f.UntilSeq = &seq
		case "says":
			f.Message = value
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		return err
	})
	s.Findings = append(s.Findings, f)
	return err
}

func (s *scene) takeStep(words []string) error {
	step := ckpt.Step{Key: words[0], Name: words[1], Status: ckpt.StepStatus(words[2]), Attempt: 1}
	var after int64
	err := pairs(words[3:], func(key, value string) (err error) {
		switch key {
		case "after":
			after, err = strconv.ParseInt(value, 10, 64)
		case "began":
			step.StartedAt, err = ago(value)
		case "ended":
			step.EndedAt, err = ago(value)
		case "result":
			step.Result = ckpt.JSON(value)
		case "args":
			step.Args = ckpt.JSON(value)
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		return err
	})
	s.Steps, s.StepsAfter = append(s.Steps, step), append(s.StepsAfter, after)
	return err
}

func (s *scene) takeOperation(words []string) error {
	o := ckpt.Operation{Key: words[0], Name: words[1], Status: ckpt.OperationStatus(words[2]), Attempt: 1}
	err := pairs(words[3:], func(key, value string) (err error) {
		switch key {
		case "attempt":
			o.Attempt, err = strconv.ParseInt(value, 10, 64)
		case "began":
			o.StartedAt, err = ago(value)
		case "ended":
			o.EndedAt, err = ago(value)
		case "checkpoint":
			o.Checkpoint = ckpt.Ref(value)
		case "idempotent":
			o.Idempotent = true
		case "check":
			o.SelfCheck = true
		case "prompt":
			o.Prompt = ckpt.Ref(value)
		case "error":
			o.Error = ckpt.Ref(value)
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		return err
	})
	s.Operations = append(s.Operations, o)
	return err
}

func (s *scene) takePrompt(words []string) error {
	p := &ckpt.Prompt{ID: words[0], Agent: "coder", Run: "main", Question: "Resume?", Reason: "It was interrupted."}
	s.Prompt = p
	return pairs(words[1:], func(key, value string) (err error) {
		switch key {
		case "made":
			p.At, err = ago(value)
		case "answered":
			p.AnsweredAt, err = ago(value)
		case "checkpoint":
			p.Checkpoint = ckpt.Ref(value)
		case "choice":
			p.Choice = ckpt.Ref(value)
		case "by":
			p.AnsweredBy = ckpt.Ref(value)
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		return err
	})
}

func (s *scene) takeQuestion(words []string) error {
	q := FactQuestion{Prompt: ckpt.Prompt{ID: words[0], Kind: ckpt.PromptQuestion, Status: ckpt.PromptOpen, Agent: "coder", Run: "main", Question: "Deploy?"}}
	err := pairs(words[1:], func(key, value string) (err error) {
		switch key {
		case "seq":
			q.Seq, err = strconv.ParseInt(value, 10, 64)
		case "made":
			q.At, err = ago(value)
		case "answered":
			q.Status = ckpt.PromptAnswered
			q.AnsweredAt, err = ago(value)
		case "choice":
			q.Choice = ckpt.Ref(value)
		case "by":
			q.AnsweredBy = ckpt.Ref(value)
		case "data":
			q.Data = ckpt.JSON(value)
		case "expired":
			q.Status = ckpt.PromptExpired
			q.ExpiresAt, err = ago(value)
		default:
			err = fmt.Errorf("what is %s?", key)
		}
		return err
	})
	s.Questions = append(s.Questions, q)
	return err
}

// answer prints a plan for comparison: the state, which is not part of the JSON here, the prompt that would be
// made, and the rest.
func answer(p *ckpt.Plan, err error) string {
	if err != nil {
		return "error " + err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.Verdict)
	for _, r := range p.Reasons {
		fmt.Fprintf(&b, "- %s\n", r)
	}
	if p.Checkpoint != nil {
		fmt.Fprintf(&b, "state %s\n", p.Checkpoint.State)
	}
	if p.Verdict == ckpt.VerdictAsk && p.Prompt == nil {
		fmt.Fprintf(&b, "new prompt: %s\n", Question(p))
	}
	reasons := p.Reasons
	p.Reasons = []string{}
	text := &bytes.Buffer{}
	e := json.NewEncoder(text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(p)
	p.Reasons = reasons
	if err != nil {
		return b.String() + err.Error() + "\n"
	}
	return b.String() + text.String()
}

func scenes(t *testing.T, check func(t *testing.T, s *scene, file, told, want string)) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			told, want, _ := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), mark)
			s, err := parseScene(told)
			if err != nil {
				t.Fatal(err)
			}
			check(t, s, file, told, want)
		})
	}
}

func TestGolden(t *testing.T) {
	scenes(t, func(t *testing.T, s *scene, file, told, want string) {
		got := answer(Make(&s.Facts))
		if *update {
			if err := os.WriteFile(file, []byte(told+mark+got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-file +now)\n%s", diff)
		}
	})
}

// TestGoldenFilesAreNamedForTheirVerdict: the name of a golden file begins with its verdict, so that rewriting the
// files cannot change a verdict unnoticed.
func TestGoldenFilesAreNamedForTheirVerdict(t *testing.T) {
	scenes(t, func(t *testing.T, s *scene, file, _, _ string) {
		p, err := Make(&s.Facts)
		want, _, _ := strings.Cut(filepath.Base(file), "_")
		switch {
		case want == "error" && err == nil:
			t.Errorf("no error, but %s", p.Verdict)
		case want != "error" && (err != nil || string(p.Verdict) != want):
			t.Errorf("%v, %v", p, err)
		}
	})
}

// TestAnAnswerLetsTheRunGoOn: no answer to a decision lets a run go on over an uncertain operation. If the operations are
// resolved, and the decision is answered with resume, the run must continue. An operator must not be asked the same thing
// forever.
func TestAnAnswerLetsTheRunGoOn(t *testing.T) {
	scenes(t, func(t *testing.T, s *scene, _, _, _ string) {
		p, err := Make(&s.Facts)
		if err != nil || p.Verdict != ckpt.VerdictAsk {
			return
		}
		if len(s.Operations) > 0 {
			s.Prompt = &ckpt.Prompt{ID: "old", At: ckpt.At(s.Now), Choice: ckpt.Ref(ckpt.ChoiceResume), AnsweredAt: ckpt.At(s.Now)}
			if p, err = Make(&s.Facts); err != nil || p.Verdict != ckpt.VerdictAsk {
				t.Fatalf("the answer resume hides an uncertain operation: %v, %v", p, err)
			}
			s.Operations, s.Prompt = nil, nil
			if p, err = Make(&s.Facts); err != nil || p.Verdict != ckpt.VerdictAsk {
				return // nothing else is to be decided
			}
		}
		prompt := p.Prompt
		if prompt == nil { // as if the store had made one
			prompt = &ckpt.Prompt{ID: "new", At: ckpt.At(s.Now), Question: Question(p), Reason: Reason(p)}
			if p.Checkpoint != nil {
				prompt.Checkpoint = ckpt.Ref(p.Checkpoint.ID)
			}
		}
		s.Prompt = prompt
		if p, err = Make(&s.Facts); err != nil || p.Verdict != ckpt.VerdictAsk || p.Prompt != prompt {
			t.Fatalf("while the prompt waits: %v, %v", p, err)
		}
		answered := *prompt
		answered.Choice, answered.AnsweredAt = ckpt.Ref(ckpt.ChoiceResume), ckpt.At(s.Now)
		s.Prompt = &answered
		if p, err = Make(&s.Facts); err != nil || (p.Verdict != ckpt.VerdictResume && p.Verdict != ckpt.VerdictRepair) || p.Prompt != nil {
			t.Errorf("after the answer: %v, %v", p, err)
		}
	})
}
