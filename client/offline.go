package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// offline makes the plan of a run that begins without the daemon, from the writes of the run that
// wait in the spool. why is the reason why the daemon is away. sent is how many of these writes have
// left the spool just before.
func (r *Run) offline(why error, sent int) {
	t := newTold(&r.done)
	unread := r.Agent.client.spool.tell(r.Agent.Name, r.Name, t)
	if unread != nil || sent > 0 {
		t.done.partly = true
	}
	r.Plan = t.plan(r.Agent.Name, r.Name, why)
	if unread != nil {
		r.Plan.Reasons = append(r.Plan.Reasons, fmt.Sprintf("It is not known what waits in the spool: %v.", unread))
	}
	if sent > 0 {
		r.Plan.Reasons = append(r.Plan.Reasons, fmt.Sprintf("It is not known what was in %d writes, which this start has sent or put aside.", sent))
	}
	r.results = map[string][]byte{}
	for key, result := range r.done.steps {
		if result != nil {
			r.results[key] = result
		}
	}
}

// tell reads the waiting writes of a run in their order.
func (s *spool) tell(agent, run string, t *told) error {
	defer s.lock(agent, run)()
	if _, err := s.folder(); err != nil {
		return nil // without a folder nothing was spooled
	}
	dir, names, err := s.waiting()
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		head, err := readHeadOf(path)
		if head != nil && !(head.Agent == agent && head.Run == run && head.owner() == s.owner && s.isOurs(head.Endpoint)) {
			continue
		}
		var body []byte
		if err == nil {
			_, body, err = readFile(path)
		}
		if err == nil {
			err = t.take(head, body)
		}
		if err != nil {
			t.skip(name, head, err)
		}
	}
	return nil
}

// told is what the spooled writes of a run tell, one after the other.
type told struct {
	done       *done
	checkpoint *ckpt.Checkpoint
	completed  []ckpt.CompletedStep // since the checkpoint
	left       int                  // how many of these are not listed, because done has not kept their results
	begun      []ckpt.InterruptedStep
	open       []ckpt.Operation
	skipped    []ckpt.Skipped
	prompt     ckpt.Ref
}

func newTold(d *done) *told {
	return &told{done: d, completed: []ckpt.CompletedStep{}, begun: []ckpt.InterruptedStep{}, open: []ckpt.Operation{}, skipped: []ckpt.Skipped{}}
}

// skip notes a file that cannot be used. head is nil if it is not known what it is about.
func (t *told) skip(name string, head *spooled, why error) {
	if head == nil || head.Version > spoolVersion || head.Method != http.MethodPut {
		t.done.partly = true
	}
	if !errors.Is(why, fs.ErrNotExist) { // another client has just sent it
		t.skipped = append(t.skipped, ckpt.Skipped{ID: name, Reason: "this file of the spool cannot be read: " + why.Error()})
	}
}

// take notes what one write tells.
func (t *told) take(h *spooled, body []byte) error {
	if h.Method == http.MethodPut {
		c, err := savedIn(h, body)
		if err == nil {
			t.load(c)
		}
		return err
	}
	parts := append(strings.Split(strings.TrimPrefix(h.Path, "/v1/agents/"+h.Agent+"/runs/"+h.Run+"/"), "/"), "", "")
	if parts[0] == "events" {
		return nil
	}
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		return err
	}
	begins := parts[1] == ""
	if !begins {
		var err error
		if q.Key, err = url.PathUnescape(parts[1]); err != nil {
			return err
		}
	}
	switch {
	case parts[0] == "steps" && begins:
		t.step(h, &q, cmp.Or(ckpt.StepStatus(q.Status), ckpt.StepStarted))
	case parts[0] == "steps":
		t.step(h, &q, cmp.Or(ckpt.StepStatus(q.Status), ckpt.StepSucceeded))
	case parts[0] == "operations" && begins:
		t.operation(h, &q)
	case parts[0] == "operations":
		t.operationEnd(&q, parts[2])
	case parts[0] == "end":
		t.end(h, &q)
	}
	return nil
}

// request is what the request of a step, of an operation or of the end of a run can say that counts
// here.
type request struct {
	Key                string      `json:"key"`
	Name               string      `json:"name"`
	Status             string      `json:"status"`
	Error              ckpt.Ref    `json:"error"`
	Args               ckpt.JSON   `json:"args"`
	Result             ckpt.JSON   `json:"result"`
	State              ckpt.JSON   `json:"state"`
	Labels             ckpt.Labels `json:"labels"`
	ContinuationPrompt ckpt.Ref    `json:"continuation_prompt"`
}

// load takes a state as the one to go on from. It knows of the steps that were done before.
func (t *told) load(c *ckpt.Checkpoint) {
	t.checkpoint, t.completed, t.left = c, t.completed[:0:0], 0
}

func (t *told) step(h *spooled, q *request, status ckpt.StepStatus) {
	if _, known := t.done.steps[q.Key]; known {
		return // it was not done again
	}
	name := cmp.Or(q.Name, ckpt.StepName(q.Key))
	if i := slices.IndexFunc(t.begun, func(s ckpt.InterruptedStep) bool { return s.Key == q.Key }); i >= 0 {
		name = cmp.Or(q.Name, t.begun[i].Name)
		t.begun = slices.Delete(t.begun, i, i+1)
	}
	switch status {
	case ckpt.StepSucceeded:
		t.done.addStep(q.Key, given(q.Result))
		if kept := t.done.steps[q.Key]; kept != nil {
			t.completed = append(t.completed, ckpt.CompletedStep{Key: q.Key, Name: name, Result: kept})
		} else {
			t.left++
		}
	case ckpt.StepStarted:
		t.begun = append(t.begun, ckpt.InterruptedStep{Key: q.Key, Name: name, Args: given(q.Args), StartedAt: h.CreatedAt,
			SyntheticResult: ckpt.NewSyntheticResult(q.Key, "The step "+strconv.Quote(q.Key)+" was interrupted: its process ended "+
				"before the result was recorded. It may or may not have taken effect; check before you repeat it.")})
	case ckpt.StepFailed, ckpt.StepInterrupted:
	}
}

func (t *told) operation(h *spooled, q *request) {
	if _, known := t.done.operations[q.Key]; known {
		return // it was not done again
	}
	if state := given(q.State); state != nil {
		t.load(stateIn(h, ckpt.KindPreOperation, state))
		t.checkpoint.Operation, t.checkpoint.Labels = ckpt.Ref(q.Key), q.Labels
	}
	attempt := int64(1)
	if i := t.lastOpen(q.Key); i >= 0 {
		attempt = t.open[i].Attempt + 1
	}
	t.open = append(t.open, ckpt.Operation{Key: q.Key, Name: q.Name, Attempt: attempt, Status: ckpt.OperationUncertain, StartedAt: h.CreatedAt})
}

// operationEnd notes how an attempt ended. A success changes nothing about an earlier attempt, and a doubt leaves this one
// as it is.
func (t *told) operationEnd(q *request, how string) {
	i := t.lastOpen(q.Key)
	switch {
	case how == "succeed":
		t.done.addOperation(q.Key, given(q.Result))
	case how == "doubt":
		if i >= 0 {
			t.open[i].Error = q.Error
		}
		return
	}
	if i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
}

// lastOpen returns the place of the last attempt of an operation in open, or -1.
func (t *told) lastOpen(key string) int {
	for i, o := range slices.Backward(t.open) {
		if o.Key == key {
			return i
		}
	}
	return -1
}

func (t *told) end(h *spooled, q *request) {
	if s := ckpt.RunStatus(q.Status); s == ckpt.RunCompleted || s == ckpt.RunFailed { // what follows begins anew
		t.done.forget()
		skipped := t.skipped
		*t = *newTold(t.done)
		t.skipped = skipped
		return
	}
	if state := given(q.State); state != nil {
		t.load(stateIn(h, ckpt.KindRoutine, state))
	}
	t.prompt = q.ContinuationPrompt
}

// plan says how the run goes on. why is the reason why the daemon is away.
func (t *told) plan(agent, run string, why error) *ckpt.Plan {
	p := &ckpt.Plan{
		Verdict: t.verdict(), Reasons: []string{}, Agent: agent, Run: run, Checkpoint: t.checkpoint, CompletedSteps: t.completed,
		InterruptedSteps: t.begun, UncertainOperations: t.open, Skipped: t.skipped, ContinuationPrompt: t.prompt, Questions: []ckpt.Prompt{},
	}
	if c := t.checkpoint; c != nil && c.Program != nil {
		p.Program = &ckpt.ProgramRest{Executed: c.Program.Executed, Remaining: c.Program.Source[c.Program.Executed:]}
	}
	say := func(format string, values ...any) { p.Reasons = append(p.Reasons, fmt.Sprintf(format, values...)) }
	if p.Verdict == ckpt.VerdictAsk {
		keys := make([]string, len(t.open))
		for i := range t.open {
			keys[i] = "operation " + strconv.Quote(t.open[i].Key)
		}
		say("The daemon is away, and it is not known whether %s took effect: the spool does not say how it ended. Start the daemon, and start the agent again, with %q if exec runs it: "+
			"the start sends what waits in the spool, and says how to resolve the operation.", strings.Join(slices.Compact(keys), " and "), ckpt.ExecCommand(agent, run, nil))
	}
	say("The daemon is away, so only what waits in the spool is known of the run: %v.", why)
	switch {
	case t.checkpoint == nil && len(t.done.steps)+len(t.done.operations)+len(t.begun)+len(t.open) == 0:
		say("Nothing waits there, so the run starts from the beginning. It is not known whether the daemon has something to resume.")
	case t.checkpoint != nil:
		say("The run goes on from the state that was spooled at %s.", t.checkpoint.CreatedAt)
	}
	if n := len(t.skipped); n > 0 {
		say("%d files of the spool cannot be read.", n)
	}
	if t.done.partly {
		say("Not everything that was done is known. A step or operation that may have been done returns an error while the daemon is away.")
	}
	if t.left > 0 {
		say("%d finished steps are not listed, because the results of all steps are too large to keep.", t.left)
	}
	return p
}

func (t *told) verdict() ckpt.ResumeVerdict {
	if len(t.open) > 0 {
		return ckpt.VerdictAsk
	}
	return ckpt.VerdictOffline
}

// given returns an optional JSON value. null counts as none.
func given(v ckpt.JSON) ckpt.JSON {
	if string(v) == "null" {
		return nil
	}
	return v
}

// stateIn is the checkpoint that another write than a save makes.
func stateIn(h *spooled, kind ckpt.Kind, state []byte) *ckpt.Checkpoint {
	return &ckpt.Checkpoint{
		Agent: h.Agent, Owner: h.owner(), Run: h.Run, Kind: kind, CreatedAt: h.CreatedAt, Size: int64(len(state)),
		ContentType: ckpt.ContentTypeJSON, Metadata: json.RawMessage("{}"), State: state,
	}
}

// savedIn is the checkpoint of a save, as far as its request tells.
func savedIn(h *spooled, body []byte) (*ckpt.Checkpoint, error) {
	query, err := url.ParseQuery(h.Query)
	if err != nil {
		return nil, err
	}
	c := stateIn(h, ckpt.Kind(query.Get("kind")), body)
	c.ID, c.SHA256 = h.Path[strings.LastIndexByte(h.Path, '/')+1:], h.SHA256
	c.Parent, c.Step = ckpt.Ref(query.Get("parent")), ckpt.Ref(query.Get("step"))
	c.ContentType = cmp.Or(h.header("Content-Type"), "application/octet-stream")
	for _, label := range query["label"] {
		if c.Labels == nil {
			c.Labels = ckpt.Labels{}
		}
		key, value, _ := strings.Cut(label, "=")
		c.Labels[key] = value
	}
	if metadata := h.header("Ckpt-Metadata"); metadata != "" {
		c.Metadata = json.RawMessage(metadata)
	}
	if trees := h.header("Ckpt-Tree"); trees != "" {
		c.Trees = strings.Split(trees, ",")
	}
	if program := h.header("Ckpt-Program"); program != "" {
		if err := json.Unmarshal([]byte(program), &c.Program); err != nil {
			return nil, err
		}
	}
	if ckpt.IsJSON(c.ContentType) && !json.Valid(body) {
		return nil, errors.New("the state is not the JSON that it should be")
	}
	return c, c.Program.Check()
}
