package console

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// subject is the run that a form is about, at the time when the form is drawn.
type subject struct {
	line client.Operator
	ref  ckpt.RunRef
	run  *ckpt.Run // nil in a form about an agent
	page string
	base string // of the session's pages

	owner string
}

// subjectOf reads the run that a request names.
func (c *Console) subjectOf(ctx context.Context, base, what string, q url.Values) (*subject, error) {
	if form, is := agentForms[what]; is {
		s := &subject{line: c.daemon.of(q.Get("owner")), ref: ckpt.RunRef{Agent: q.Get("agent")}, owner: q.Get("owner"), page: base + form.page, base: base}
		return s, ckpt.CheckAgentName(s.ref.Agent)
	}
	s := &subject{line: c.daemon.of(q.Get("owner")), ref: ckpt.RunRef{Agent: q.Get("agent"), Run: q.Get("run")}, base: base}
	if err := s.ref.Check(); err != nil {
		return nil, err
	}
	var err error
	if s.run, err = s.line.Run(ctx, s.ref); err != nil {
		return nil, err
	}
	s.owner = s.run.Owner
	s.page = runPath(base, s.run.Owner, s.run.Agent, s.run.Run)
	return s, nil
}

// seen returns what the operator saw of the run. It is compared before the action is
// performed.
func (s *subject) seen() []pair {
	if s.run == nil {
		return []pair{{"owner", s.owner}, {"agent", s.ref.Agent}}
	}
	return []pair{
		{"owner", s.run.Owner}, {"agent", s.run.Agent}, {"run", s.run.Run},
		{"epoch", strconv.FormatInt(s.run.Epoch, 10)}, {"status", string(s.run.Status)},
	}
}

func (s *subject) name() string { return s.run.Agent + " / " + s.run.Run }

// forms create the form of each action.
var forms = map[string]func(*Console, context.Context, *subject, url.Values) (*askView, error){
	"resolve": askResolve, "answer": askAnswer, "dismiss": askDismiss, "pin": askPin, "unpin": askPin, "label": askLabel,
	"restore": askRestore, "fork": askFork,
}

// ask draws the form of an action. It changes nothing.
func (c *Console) ask(w http.ResponseWriter, r *http.Request) {
	what, q := r.PathValue("what"), r.URL.Query()
	form, ok := forms[what]
	if agents, is := agentForms[what]; is {
		form, ok = agents.ask, true
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	s, err := c.subjectOf(r.Context(), sessionOf(r).base(), what, q)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	if what == "policy" && !q.Has("tag") {
		c.policyForm(w, r, s)
		return
	}
	v, err := form(c, r.Context(), s, q)
	if err != nil {
		c.troubleAt(w, r, s.page, err)
		return
	}
	v.frame = c.frameOf(r, v.Heading, "-")
	v.Crumb = s.owner
	v.What, v.Cancel, v.Key = what, s.page, newKey(c.options.Now())
	v.Hidden = append(s.seen(), v.Hidden...)
	c.show(w, r, http.StatusOK, "ask", v)
}

func askResolve(c *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	key := unpack(q.Get("op"))
	o, err := s.operation(ctx, key)
	if err != nil {
		return nil, err
	}
	if o.Status != ckpt.OperationUncertain {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "the operation %q is not uncertain any more: it has %s", o.Name, o.Status)
	}
	name, of := draw.FirstLine(o.Name, 80), fmt.Sprintf("Of %s, begun %s.", s.name(), draw.Clock(o.StartedAt))
	v := &askView{Reason: true, Hidden: []pair{{"op", pack(key)}, {"found", q.Get("status")}, {"attempt", strconv.FormatInt(o.Attempt, 10)}}}
	switch ckpt.PromptChoice(q.Get("status")) {
	case ckpt.ChoiceItDid:
		v.Do, v.Heading = "It did", fmt.Sprintf("“%s” took effect", name)
		v.Intro = of + " It is recorded as succeeded, and a resume does not do it again."
		v.Fields = []field{resultField(o.ResultSchema)}
	case ckpt.ChoiceItDidNot:
		v.Do, v.Heading = "It did not", fmt.Sprintf("“%s” did not take effect", name)
		v.Intro = of + " It is recorded as failed, and whoever resumes the run may do it again."
	case ckpt.ChoiceRepeat:
		v.Do, v.Heading = "Repeat", fmt.Sprintf("Repeat “%s”", name)
		v.Intro = of + " It may then happen twice. This attempt is recorded as superseded, and the agent may begin another one."
		if o.Idempotent {
			v.Intro = of + " It is idempotent, so that is harmless. This attempt is recorded as superseded, and the agent may begin another one."
		}
	default:
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the form names no answer: load the page again")
	}
	evidence, err := s.evidence(ctx, o)
	if err != nil {
		return nil, err
	}
	v.Fields = append([]field{evidence}, v.Fields...)
	if len(v.Fields) == 1 || !v.Fields[1].Required { // a required result is of one operation
		alike, err := c.alike(ctx, s, o)
		if err != nil {
			return nil, err
		}
		v.Fields = append(v.Fields, alike...)
	}
	return v, nil
}

// evidence is what is known about the run that asks: the operation, if the question is about one, and the last steps.
func (s *subject) evidence(ctx context.Context, o *ckpt.Operation) (field, error) {
	hide, err := textSecrets(ctx, s.line, s.ref)
	if err != nil {
		return field{}, err
	}
	page, err := s.line.Transcript(ctx, s.ref, survey.TranscriptQuery{Limit: 3, Text: 1000})
	if err != nil {
		return field{}, err
	}
	var lines []string
	if o != nil {
		if len(o.Args) > 0 && string(o.Args) != "null" {
			text, _ := stepTextOf("args", string(o.Args), false, hide)
			lines = append(lines, "Arguments: "+draw.FirstLine(text, 600))
		}
		lines = append(lines, evidenceOf(o))
	}
	for i := range page.Steps {
		x := &page.Steps[i]
		line := fmt.Sprintf("%s  %s %s", draw.Clock(x.StartedAt), draw.FirstLine(x.Name, 60), stepWords[x.Status].Word)
		for _, of := range []struct {
			name, text string
			size       int64
		}{{"error", x.Error, x.ErrorSize}, {"result", x.Result, x.ResultSize}} {
			if of.size > 0 {
				text, _ := stepTextOf(of.name, of.text, int64(len([]rune(of.text))) < of.size, hide)
				line += ": " + draw.FirstLine(text, 200)
				break
			}
		}
		lines = append(lines, line)
	}
	if len(page.Steps) == 0 {
		lines = append(lines, "The run has recorded no steps.")
	}
	return field{Kind: "told", Label: strings.Join(lines, "\n")}, nil
}

// mostAlike is how many operations one form answers besides its own.
const mostAlike = 20

// alike offers to give the same answer for uncertain operations of other runs of the agent that have the same name.
func (c *Console) alike(ctx context.Context, s *subject, o *ckpt.Operation) (fields []field, err error) {
	c.daemon.forget() // a person who opens a form wants the current state
	now, err := c.daemon.overview(ctx)
	if err != nil {
		return nil, err
	}
	for i := range now.Needs {
		n := &now.Needs[i]
		if n.What == survey.NeedOperation && n.Owner == s.owner && n.Agent == s.ref.Agent && n.Text == o.Name && n.Run != s.ref.Run && len(fields) < mostAlike {
			fields = append(fields, field{Kind: "yes", Name: also + pack(n.Run+"\n"+strconv.FormatInt(n.Attempt, 10)+"\n"+n.Operation),
				Label: "The same for " + n.Run, Help: fmt.Sprintf("begun %s, as far as is known", draw.LongClock(now.At, n.Since))})
		}
	}
	return fields, nil
}

// also begins the names of the fields with which a person gives one answer for several operations.
const also = "also."

// resultField asks for the result of an operation that took effect.
func resultField(schema ckpt.JSON) field {
	f := field{ID: "result", Name: "result", Label: "Result, as JSON", Kind: "long",
		Help: "The agent's code gets it. It may stay empty."}
	if len(schema) > 0 && string(schema) != "null" {
		f.Required, f.Help = true, "The agent's code needs it. It must match this schema: "+draw.FirstLine(string(schema), 1000)
	}
	return f
}

// operation finds an operation of the run by its key: its newest uncertain attempt, else its newest
// attempt.
func (s *subject) operation(ctx context.Context, key string) (*ckpt.Operation, error) {
	for _, status := range []ckpt.OperationStatus{ckpt.OperationUncertain, ""} {
		f := ckpt.ListFilter{Status: string(status), Limit: ckpt.MaxLimit}
		for range 20 {
			page, err := s.line.Operations(ctx, s.ref, f)
			if err != nil {
				return nil, err
			}
			for i := range page.Operations {
				if page.Operations[i].Key == key {
					return &page.Operations[i], nil
				}
			}
			if f.Before = string(page.Next); f.Before == "" {
				break
			}
		}
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound, "the run has no such operation")
}

func askAnswer(_ *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	p, err := s.line.Prompt(ctx, q.Get("prompt"))
	if err != nil {
		return nil, err
	}
	evidence, err := s.evidence(ctx, nil)
	if err != nil {
		return nil, err
	}
	if p.Status != ckpt.PromptOpen {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "this prompt is not open any more: it is %s", p.Status)
	}
	v := &askView{Reason: true, Do: "Answer", Heading: draw.FirstLine(p.Question, 300), Intro: p.Reason, Hidden: []pair{{"prompt", p.ID}}}
	if p.Kind == ckpt.PromptQuestion {
		v.Fields = append([]field{evidence}, questionFields(p)...)
		return v, nil
	}
	if p.Kind == ckpt.PromptOperation {
		o, err := s.operation(ctx, string(p.Operation))
		if err != nil {
			return nil, err
		}
		if evidence, err = s.evidence(ctx, o); err != nil {
			return nil, err
		}
		result := resultField(p.Schema)
		result.Required = false // only with "It did"; the daemon says so
		v.Fields = []field{evidence, {ID: "choice", Name: "choice", Label: "Did it take effect?", Kind: "choice", Required: true, Options: []option{
			{Value: string(ckpt.ChoiceItDid), Label: "It did", Help: "It is recorded as succeeded, and not done again."},
			{Value: string(ckpt.ChoiceItDidNot), Label: "It did not", Help: "It is recorded as failed, and may be begun again."},
			{Value: string(ckpt.ChoiceRepeat), Label: "Repeat", Help: "Nobody knows, and the agent may begin it again: the question above says whether it may then happen twice."},
		}}, result}
		return v, nil
	}
	v.Lost = patchLines(p.MemoryDiff)
	loses := "It begins with nothing. What was saved stays as history."
	if n := len(v.Lost); n > 0 {
		loses = fmt.Sprintf("It begins with nothing: %s of its memory would be lost. What was saved stays as history.", draw.Plural(n, "part"))
	}
	v.Fields = []field{evidence, {ID: "choice", Name: "choice", Label: "How shall it go on?", Kind: "choice", Required: true, Options: []option{
		{Value: string(ckpt.ChoiceResume), Label: "Resume", Help: "An agent may claim it and go on where it was."},
		{Value: string(ckpt.ChoiceReinitialize), Label: "Begin anew", Help: loses},
		{Value: string(ckpt.ChoiceAbandon), Label: "Give up", Help: "The run has failed, and nobody resumes it."},
	}}}
	return v, nil
}

// patchLines lists what a change removes, one line for each place.
func patchLines(patch ckpt.JSON) (lines []string) {
	var ops []struct{ Op, Path string }
	if json.Unmarshal(patch, &ops) != nil {
		return nil
	}
	for _, o := range ops {
		name := o.Path
		if name == "" {
			name = "all of it"
		}
		lines = append(lines, draw.FirstLine(name, 120))
	}
	return lines
}

func askDismiss(_ *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	report, err := s.line.Drift(ctx, ckpt.DriftFilter{Agent: s.ref.Agent, Run: s.ref.Run, Limit: ckpt.MaxLimit})
	if err != nil {
		return nil, err
	}
	var ids, names []string
	for i := range report.Findings {
		f := &report.Findings[i]
		one := q.Get("finding") == f.ID
		all := q.Get("all") != "" || q.Get("severity") == string(f.Severity)
		if (one || all) && f.Closed == "" {
			ids, names = append(ids, f.ID), append(names, f.Rule+": "+draw.FirstLine(f.Message, 160))
		}
	}
	if len(ids) == 0 {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "nothing is open there any more: somebody has dismissed it, or the run went back")
	}
	v := &askView{
		Reason: true, Do: "Dismiss", Heading: fmt.Sprintf("Dismiss %s of %s", draw.Plural(len(ids), "finding"), s.name()),
		Intro: "They were no drift, or are dealt with. Checkpoints that are suspect because of them alone become clean again.", Lost: nil,
		Hidden: []pair{{"findings", strings.Join(ids, ",")}},
	}
	v.Fields = []field{{Kind: "told", Label: strings.Join(names[:min(len(names), 6)], "\n")}}
	if len(names) > 6 {
		v.Fields[0].Help = fmt.Sprintf("and %d more", len(names)-6)
	}
	return v, nil
}

// checkpointOf reads the checkpoint that a form is about.
func (s *subject) checkpointOf(ctx context.Context, q url.Values) (*ckpt.Checkpoint, error) {
	cp, err := s.line.Checkpoint(ctx, q.Get("checkpoint"), false)
	if err != nil {
		return nil, err
	}
	if cp.Agent != s.run.Agent || cp.Run != s.run.Run {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "the checkpoint is not of this run")
	}
	return cp, nil
}

func askPin(_ *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	cp, err := s.checkpointOf(ctx, q)
	if err != nil {
		return nil, err
	}
	v := &askView{Hidden: []pair{{"checkpoint", cp.ID}, {"want", "pinned"}}, Reason: true}
	v.Do, v.Heading, v.Intro = "Pin", fmt.Sprintf("Pin checkpoint %d of %s", cp.Seq, s.name()), "Retention never removes it."
	if cp.Pinned {
		v.Hidden[1].Value = "not"
		v.Do, v.Heading, v.Intro = "Unpin", fmt.Sprintf("Unpin checkpoint %d of %s", cp.Seq, s.name()), "Retention may remove it again."
	}
	return v, nil
}

func askLabel(_ *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	cp, err := s.checkpointOf(ctx, q)
	if err != nil {
		return nil, err
	}
	return &askView{
		Do: "Set labels", Heading: fmt.Sprintf("Labels of checkpoint %d of %s", cp.Seq, s.name()), Reason: true,
		Intro:  "One a line, as name=value. They replace those that are there.",
		Fields: []field{{ID: "labels", Name: "labels", Label: "Labels", Kind: "long", Value: labelText(cp.Labels)}},
		Hidden: []pair{{"checkpoint", cp.ID}, {"before", pack(labelText(cp.Labels))}},
	}, nil
}

func labelText(labels ckpt.Labels) string {
	lines := make([]string, 0, len(labels))
	for name, value := range labels {
		lines = append(lines, name+"="+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func askRestore(_ *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	cp, err := s.checkpointOf(ctx, q)
	if err != nil {
		return nil, err
	}
	return &askView{
		Reason: true, Do: "Restore", Heading: fmt.Sprintf("Restore checkpoint %d of %s", cp.Seq, s.name()),
		Intro: fmt.Sprintf("The next resume will load checkpoint %d, the next save has it as its parent, and the progress of the run is cleared. "+
			"The checkpoints after it stay. To look at a state, take View: that changes nothing.", cp.Seq),
		Hidden: []pair{{"checkpoint", cp.ID}},
	}, nil
}

// mostEdited is the maximum size of a state that a person can edit on a page.
const mostEdited = 256 << 10

func askFork(_ *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	cp, err := s.checkpointOf(ctx, q)
	if err != nil {
		return nil, err
	}
	name, err := s.forkName(ctx, cp.Seq)
	if err != nil {
		return nil, err
	}
	v := &askView{
		Do: "Fork", Heading: fmt.Sprintf("Fork a new run from checkpoint %d of %s", cp.Seq, s.name()), Reason: true,
		Intro:  "It registers a run that begins with this state and waits for an agent. The page says how to start one.",
		Hidden: []pair{{"checkpoint", cp.ID}},
		Fields: []field{{ID: "name", Name: "name", Label: "Name of the new run", Kind: "text", Required: true, Value: name}},
	}
	if ckpt.IsJSON(cp.ContentType) && cp.Size <= mostEdited {
		state, err := s.line.State(ctx, cp.ID)
		if err != nil {
			return nil, err
		}
		masked := false
		if q.Get("show") != "secrets" {
			if masked, err = s.hasSecrets(ctx, state); err != nil {
				return nil, err
			}
		}
		if masked {
			shown := maps.Clone(q)
			shown.Set("show", "secrets")
			v.Fields = append(v.Fields, field{Label: "Change the state (shows its secrets)", Kind: "link", Value: s.base + "ask/fork?" + shown.Encode()})
			return v, nil
		}
		text := editable(state)
		v.Fields = append(v.Fields, field{
			ID: "state", Name: "state", Label: "Change the state first", Kind: "fold", Value: text,
			Help: "JSON. As it stands here, the run begins with the very state of the checkpoint.",
		})
		v.Hidden = append(v.Hidden, pair{"drawn", hash([]byte(text))})
	}
	return v, nil
}

// hasSecrets reports whether a state of the run has values that a finding names as secrets.
func (s *subject) hasSecrets(ctx context.Context, state []byte) (bool, error) {
	places, err := placesOfSecrets(ctx, s.line, s.ref)
	return len(secretsIn(state, places)) > 0, err
}

// mostNames is how many names forkName tries.
const mostNames = 50

// forkName proposes a name that no run of the agent has. "" means that the person must find one.
func (s *subject) forkName(ctx context.Context, seq int64) (string, error) {
	first := fmt.Sprintf("%s-fork-%d", s.run.Run, seq)
	name := first
	for n := 2; n <= mostNames && len(name) <= ckpt.MaxRunName; n++ {
		if taken, err := s.hasRun(ctx, name); err != nil || !taken {
			return name, err
		}
		name = fmt.Sprintf("%s-%d", first, n)
	}
	return "", nil
}
