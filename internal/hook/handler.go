package hook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Handler handles the inputs of hooks.
type Handler struct {
	Client    *client.Client
	Product   Product // "" to find out from the input
	Agent     string  // "" for the project's agent
	Project   Project
	Run       string // "" for one run for each session; otherwise another process owns the run, such as exec
	Epoch     *int64 // of Run
	PID       int    // the agent's process; 0 if it is not known
	Risky     *Risky
	SaveEvery int64 // how many tool calls; 0 for never

	Files     Files         // nil if no files are kept
	FilesWait time.Duration // how long a risky call waits for its files
	Prompts   int           // how many prompts of the project keep their files; 0 for all
}

// Extra returns how much longer than usual an input may take: a risky call waits for
// its files.
func (h *Handler) Extra(in *Input) time.Duration {
	if h.Files == nil || events[in.Event] != toolBegins {
		return 0
	}
	if _, risky := h.Risky.Is(in); !risky {
		return 0
	}
	return h.FilesWait
}

// Handle does what an input asks for, and returns what to print.
func (h *Handler) Handle(ctx context.Context, in *Input) ([]byte, error) {
	this := *h
	c := &call{Handler: &this, in: in, product: in.product(h.Product), ref: ckpt.RunRef{Agent: h.Agent, Run: h.Run, Epoch: h.Epoch}}
	if h.Run == "" {
		c.ref.Run = runOf(in.Session, in.SubagentID)
	}
	if err := c.find(ctx); err != nil {
		return nil, err
	}
	text, err := c.handle(ctx)
	return answer(c.product, in.Event, text), err
}

// find reads the run as it was left. If no agent is named, the agent is the project's.
func (c *call) find(ctx context.Context) error {
	if c.Agent == "" {
		c.Agent = c.Project.Agent
		c.ref.Agent = c.Agent
	}
	if !c.owned() {
		return nil
	}
	run, err := c.Client.Run(ctx, c.ref)
	if err != nil {
		return ignore(err, ckpt.CodeNotFound)
	}
	c.run = run
	return nil
}

// call is one input that is being handled.
type call struct {
	*Handler
	in      *Input
	product Product
	ref     ckpt.RunRef
	run     *ckpt.Run // as it was when the call began; nil if there was none, or if another process begins and ends it
}

func (c *call) handle(ctx context.Context) (string, error) {
	if err := c.mayWrite(ctx); err != nil {
		return "", err
	}
	switch events[c.in.Event] {
	case sessionStarts:
		text, err := c.start(ctx)
		if c.Files != nil {
			err = first(err, c.Files.Warm(c.Project.Folder, c.ref))
		}
		return joined(c.interruptedText(), text), err
	case promptGiven:
		return c.prompted(ctx)
	case toolBegins:
		return c.begin(ctx)
	case toolEnded, toolFailed:
		return c.end(ctx)
	case compacts:
		return c.save(ctx)
	case turnEnds:
		return "", first(c.settle(ctx), second(c.save(ctx)))
	case subagentStarts, subagentEnds:
		return "", c.subagentEvent(ctx)
	case sessionEnds:
		if !c.owned() {
			_, err := c.save(ctx)
			return "", err
		}
		return "", c.over(ctx)
	}
	return "", nil
}

func joined(one, other string) string {
	if one == "" || other == "" {
		return one + other
	}
	return one + "\n\n" + other
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func second(_ string, err error) error { return err }

// runOf returns the run of a session, or of a part of it that works by itself.
func runOf(session, part string) string {
	run := session
	if part != "" {
		run += "." + part
	}
	return ckpt.RunOfSession(run)
}

// owned reports whether the run belongs to this session: then no other process begins
// and ends it.
func (c *call) owned() bool { return c.Run == "" }

func (c *call) request() ckpt.RunRequest {
	return ckpt.RunRequest{
		Agent: c.Agent, Run: c.ref.Run, Workflow: ckpt.Ref(c.product), PID: c.PID, ExternalSession: ckpt.Ref(limit(c.in.Session, 1024)),
		Labels: ckpt.Labels{"product": string(c.product), projectLabel: c.Project.ID},
	}
}

// subagentEvent begins or ends the run of a subagent. Without an id there is none: old
// versions of Claude Code name no subagent, and its calls are in the session's run.
func (c *call) subagentEvent(ctx context.Context) error {
	switch {
	case c.in.SubagentID == "":
		return nil
	case events[c.in.Event] == subagentEnds:
		return c.over(ctx)
	}
	_, err := c.register(ctx, c.subagent())
	return err
}

func (c *call) subagent() ckpt.RunRequest {
	r := c.request()
	r.ParentRun = ckpt.Ref(runOf(c.in.Session, ""))
	if c.in.SubagentType != "" {
		r.Labels["subagent"] = strings.Map(printable, limit(c.in.SubagentType, 200))
	}
	return r
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

// register makes the session the owner of its run. If the run was interrupted, it is
// resumed, and the plan says how it was left. Otherwise the plan is nil. If another
// process owns the run and is alive, the plan comes with an error.
func (c *call) register(ctx context.Context, r ckpt.RunRequest) (*ckpt.Plan, error) {
	if !c.owned() {
		return nil, nil
	}
	if c.run != nil { // what the request does not name stays
		for name, value := range c.run.Labels {
			if _, named := r.Labels[name]; !named {
				r.Labels[name] = value
			}
		}
	}
	_, _, err := c.Client.StartRun(ctx, r)
	if ckpt.CodeOf(err) != ckpt.CodeConflict {
		return nil, err
	}
	plan, err := c.resume(ctx, r.Run)
	if err == nil && c.heldByAnother(plan) {
		err = c.refusal()
	}
	return plan, err
}

// resume goes on with an interrupted run. If a person has to decide whether it may go on, that person has done so by
// continuing the session. An operation that is uncertain is left so, and still waits for an answer.
func (c *call) resume(ctx context.Context, run string) (*ckpt.Plan, error) {
	why := fmt.Sprintf("The session was continued in %s.", c.product)
	request := ckpt.ResumeRequest{Agent: c.Agent, Run: run, PID: c.PID, Reason: why}
	plan, _, err := c.Client.Resume(ctx, request)
	if err != nil || plan.Verdict != ckpt.VerdictAsk {
		return plan, err
	}
	if slices.ContainsFunc(plan.UncertainOperations, func(o ckpt.Operation) bool { return o.NeedsPerson() }) {
		request.LeaveUncertain = true
		plan, _, err = c.Client.Resume(ctx, request)
		if err != nil || plan.Verdict != ckpt.VerdictAsk {
			return plan, err
		}
	}
	_, _, err = c.Client.AnswerPrompt(ctx, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceResume, Reason: why})
	if ignore(err, ckpt.CodeConflict) != nil { // a conflict: it was answered meanwhile
		return nil, err
	}
	plan, _, err = c.Client.Resume(ctx, request)
	return plan, err
}

// another reports whether the run's owner is another process than the agent's.
func (c *call) another() bool {
	return c.run != nil && c.PID != 0 && c.run.PID != 0 && c.run.PID != c.PID
}

// heldByAnother reports whether a plan was refused because the run belongs to another process, which is alive. A plan
// is also refused if all checkpoints are damaged.
func (c *call) heldByAnother(plan *ckpt.Plan) bool {
	return c.another() && plan.Verdict == ckpt.VerdictUnsafe && len(plan.Skipped) == 0
}

func (c *call) refusal() error {
	return ckpt.Errorf(ckpt.CodeFenced, "run %s belongs to process %d, which is alive and has the same session open: what this "+
		"process does is not recorded. Close the session in one of them", c.run.Run, c.run.PID)
}

// hasHost reports whether an error says that another host of the fleet has the run.
func hasHost(err error) bool {
	var e *ckpt.Error
	return errors.As(err, &e) && e.Host != ""
}

// mayWrite refuses to record anything in a run that belongs to another process, as if both were one. The beginning of
// a session and of a turn claim the run, and so find out themselves.
func (c *call) mayWrite(ctx context.Context) error {
	if e := events[c.in.Event]; e == sessionStarts || e == promptGiven || !c.another() || c.run.Status != ckpt.RunRunning {
		return nil
	}
	plan, _, err := c.Client.Resume(ctx, ckpt.ResumeRequest{Agent: c.Agent, Run: c.ref.Run, PID: c.PID, DryRun: true})
	if err == nil && c.heldByAnother(plan) {
		err = c.refusal()
	}
	return err
}

// start begins a session, and tells it how an interrupted session was left.
func (c *call) start(ctx context.Context) (string, error) {
	if c.in.Source == "compact" {
		return c.afterCompaction(ctx)
	}
	request := c.request()
	var broken *ckpt.Plan
	if c.owned() && c.in.Source != "resume" {
		var err error
		if broken, err = c.brokenBefore(ctx); err != nil {
			return "", err
		}
		if broken != nil {
			request.Labels[toldLabel] = noteOf(broken.Run, broken.Attempt)
		}
	}
	plan, err := c.register(ctx, request)
	switch {
	case err != nil && (plan != nil || hasHost(err)):
		return c.notRecordedText(err), err
	case err != nil:
		return "", err
	case plan != nil && plan.Verdict != ckpt.VerdictUnsafe && plan.Verdict != ckpt.VerdictFresh:
		return planText(plan, true), nil
	case broken != nil:
		return planText(broken, false), nil
	}
	return "", nil
}

// recent is how many of an agent's runs are searched for an interrupted one.
const recent = 20

// brokenBefore looks at the session before this one. If that session was interrupted,
// it returns how it was left. It does not return what an earlier session was already
// told.
func (c *call) brokenBefore(ctx context.Context) (*ckpt.Plan, error) {
	page, err := c.Client.Runs(ctx, ckpt.RunFilter{Agent: c.Agent, Limit: recent})
	if err != nil {
		return nil, ignore(err, ckpt.CodeNotFound)
	}
	for i := range page.Runs {
		r := &page.Runs[i]
		elsewhere := r.Labels[projectLabel] != c.Project.ID
		if r.Run == c.ref.Run || r.ParentRun != "" || r.Labels["product"] == "" || elsewhere {
			continue
		}
		switch r.Status {
		case ckpt.RunRunning, ckpt.RunStarting:
			if r.PID == 0 {
				continue // perhaps another session that is at work now
			}
		case ckpt.RunInterrupted, ckpt.RunTimedOut:
		default:
			return nil, nil
		}
		if told(page.Runs, r) {
			return nil, nil
		}
		plan, _, err := c.Client.Resume(ctx, ckpt.ResumeRequest{Agent: c.Agent, Run: r.Run, DryRun: true})
		if hasHost(err) { // that session goes on elsewhere, and this one begins
			return nil, nil
		}
		if err != nil || plan.Verdict != ckpt.VerdictUnsafe || len(plan.Skipped) > 0 {
			return plan, err
		}
	}
	return nil, nil
}

// toldLabel is the label of a run that holds which interrupted run its session was told about.
const toldLabel = "after"

// noteOf names a run and its attempt, because a session that continues can stop again.
func noteOf(run string, attempt int64) string {
	return fmt.Sprintf("%s, attempt %d", limit(run, ckpt.MaxLabelValue-40), attempt)
}

func told(runs []ckpt.Run, broken *ckpt.Run) bool {
	note := noteOf(broken.Run, broken.Attempt)
	return slices.ContainsFunc(runs, func(r ckpt.Run) bool { return r.Labels[toldLabel] == note })
}

// afterCompaction returns what a summary may have lost.
func (c *call) afterCompaction(ctx context.Context) (string, error) {
	latest, err := c.Client.Latest(ctx, ckpt.CheckpointFilter{Agent: c.Agent, Run: c.ref.Run}, true)
	if err != nil {
		return "", err
	}
	s := readSnapshot(latest)
	if s == nil || len(s.Plan) == 0 && s.Goal == "" {
		return "", nil
	}
	return "[ckptsidecar] Before the compaction. " + asData(s.told(latest.CreatedAt.String())), nil
}

// promptEvent is the type of an event that holds a prompt.
const promptEvent = "prompt"

// prompted begins a turn. It registers the run again if necessary, in case the daemon
// was away when the session began, or another process owned the run then. The first
// prompt becomes the run's goal.
func (c *call) prompted(ctx context.Context) (string, error) {
	if key, end := c.in.told(); end != nil {
		return "", c.close(ctx, key, end)
	}
	request := c.request()
	noGoal := c.run == nil || c.run.Goal == ""
	if noGoal {
		request.Goal = ckpt.Ref(limit(c.in.Prompt, maxPrompt))
	}
	var plan *ckpt.Plan
	var err error
	if noGoal || c.run.Status != ckpt.RunRunning || c.another() {
		if plan, err = c.register(ctx, request); err != nil {
			return "", err
		}
	}
	payload, err := json.Marshal(map[string]string{"prompt": limit(c.in.Prompt, maxPrompt)})
	if err != nil {
		return "", err
	}
	appended, _, err := c.Client.Append(ctx, c.ref, []ckpt.NewEvent{{Type: promptEvent, Payload: payload}}, "")
	restored := ""
	if err == nil {
		restored, err = c.restoredText(ctx)
		err = first(c.promptFiles(ctx, appended.Last), err)
	}
	if plan != nil && plan.Claimed && plan.Verdict != ckpt.VerdictFresh {
		return joined(planText(plan, true), restored), err
	}
	return restored, err
}

// maxKept is the most bytes of a tool's arguments or result that are kept.
const maxKept = 64 << 10

// kept returns a value as it is kept: whole, or for a large value its size, its hash
// and its beginning.
func kept(value ckpt.JSON) ckpt.JSON {
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	if len(value) <= maxKept {
		return value
	}
	return encoded(cut(value))
}

// cut returns what is kept of a large value.
func cut(value ckpt.JSON) map[string]any {
	sum := sha256.Sum256(value)
	return map[string]any{"cut": true, "bytes": len(value), "sha256": hex.EncodeToString(sum[:]), "begin": limit(string(value), maxKept/4)}
}

func encoded(members map[string]any) ckpt.JSON {
	text, err := json.Marshal(members)
	if err != nil {
		return nil
	}
	return text
}

// prefix returns the beginning of the key of a call whose product gives it no id. It
// lets the end of the call find its beginning.
func (c *call) prefix() string {
	return prefixOf(c.in.Tool, c.in.ToolInput)
}

func prefixOf(tool string, args ckpt.JSON) string {
	sum := sha256.Sum256([]byte(tool + "\x00" + string(args)))
	return "call-" + hex.EncodeToString(sum[:8]) + "-"
}

// newKey returns the key of a call that begins.
func (c *call) newKey() string {
	if c.in.ToolUseID != "" {
		return limit(strings.Map(printable, c.in.ToolUseID), ckpt.MaxKey-4)
	}
	return c.prefix() + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// openKey returns the key of a call that ends, "" if its beginning is not known.
func (c *call) openKey(ctx context.Context) (string, error) {
	if c.in.ToolUseID != "" {
		return c.newKey(), nil
	}
	page, err := c.Client.Steps(ctx, c.ref, ckpt.ListFilter{Status: string(ckpt.StepStarted), Limit: ckpt.MaxLimit})
	if err != nil {
		return "", err
	}
	for i := len(page.Steps) - 1; i >= 0; i-- {
		if strings.HasPrefix(page.Steps[i].Key, c.prefix()) {
			return page.Steps[i].Key, nil
		}
	}
	return "", nil
}

func (c *call) toolName() string {
	if name := strings.Map(printable, limit(c.in.Tool, maxName)); name != "" {
		return name
	}
	return "tool"
}

// begin records that a tool call begins. For a risky call it also begins an operation.
func (c *call) begin(ctx context.Context) (string, error) {
	c.waitForPrompt(ctx)
	key := c.newKey()
	step := ckpt.StepRequest{Key: key, Name: c.toolName(), Args: keptArgs(c.in.Tool, c.in.ToolInput)}
	begun, _, err := c.Client.BeginStep(ctx, c.ref, step)
	if ckpt.CodeOf(err) == ckpt.CodeConflict { // the run had ended, but the session goes on
		if _, err = c.register(ctx, c.request()); err == nil {
			begun, _, err = c.Client.BeginStep(ctx, c.ref, step)
		}
	}
	if err != nil {
		return "", err
	}
	what, risky := c.Risky.Is(c.in)
	if !risky {
		return adviceOf(c.ref, begun.Drift), nil
	}
	state, err := c.state(ctx)
	if err != nil {
		return "", err
	}
	filesErr := c.riskyFiles(ctx, state)
	_, _, err = c.Client.BeginOperation(ctx, c.ref, ckpt.OperationRequest{Key: key, Name: strings.Map(printable,
		limit(strings.TrimSpace(what), maxName)), State: state})
	return adviceOf(c.ref, begun.Drift), first(err, filesErr)
}

// close ends a call whose end comes from elsewhere than from a hook at its end.
func (c *call) close(ctx context.Context, key string, end *ending) error {
	return first(c.closeStep(ctx, key, end), ignore(c.closeOperation(ctx, key, 0, end), ckpt.CodeNotFound))
}

func (c *call) closeStep(ctx context.Context, key string, end *ending) error {
	r := ckpt.StepRequest{Key: key, Status: ckpt.StepFailed, Error: ckpt.Ref(limit(end.why, maxKept/2))}
	if end.status == ckpt.StepSucceeded {
		r.Status, r.Result = ckpt.StepSucceeded, kept(encodedText(end.output))
	}
	_, _, err := c.Client.FinishStep(ctx, c.ref, r)
	return err
}

func (c *call) closeOperation(ctx context.Context, key string, attempt int64, end *ending) error {
	r := ckpt.OperationEnd{Key: key, Attempt: attempt, Status: ckpt.OperationUncertain, Error: ckpt.Ref(limit(end.why, maxKept/2))}
	switch end.status {
	case ckpt.StepSucceeded:
		r.Status, r.Error, r.Result = ckpt.OperationSucceeded, "", kept(encodedText(end.output))
	case ckpt.StepFailed:
		r.Status = ckpt.OperationFailed
	}
	_, _, err := c.Client.EndOperation(ctx, c.ref, r)
	return err
}

// end records how a tool call ended. A call that goes on in the background stays open until its end is told.
func (c *call) end(ctx context.Context) (string, error) {
	if c.in.background() {
		return "", nil
	}
	key, err := c.openKey(ctx)
	if err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound {
		return "", err
	}
	r := ckpt.StepRequest{Key: key, Name: c.toolName(), Args: keptArgs(c.in.Tool, c.in.ToolInput), Status: ckpt.StepSucceeded,
		Result: keptResult(c.in.ToolResponse), Turn: c.in.turn(), DurationMS: c.in.DurationMS}
	if failure := c.in.failure(); failure != "" {
		r.Status, r.Error, r.Outcome = ckpt.StepFailed, ckpt.Ref(limit(failure, maxKept/2)), c.in.Outcome()
	}
	step, err := c.finish(ctx, r)
	if err != nil {
		return "", err
	}
	say := adviceOf(c.ref, step.Drift)
	if _, risky := c.Risky.Is(c.in); risky {
		err = c.endOperation(ctx, step.Key, r)
	}
	return say, first(err, c.saveIfDue(ctx))
}

// finish ends a step, or records the whole step if no hook reported its beginning.
func (c *call) finish(ctx context.Context, r ckpt.StepRequest) (*ckpt.Step, error) {
	if r.Key != "" {
		step, _, err := c.Client.FinishStep(ctx, c.ref, r)
		if ckpt.CodeOf(err) != ckpt.CodeNotFound {
			return step, err
		}
	} else {
		r.Key = c.newKey()
	}
	step, _, err := c.Client.BeginStep(ctx, c.ref, r)
	return step, err
}

func (c *call) endOperation(ctx context.Context, key string, r ckpt.StepRequest) error {
	end := ckpt.OperationEnd{Key: key, Status: ckpt.OperationSucceeded, Result: r.Result, Error: r.Error}
	switch { // the model has seen the result, also an error, and decides what to do
	case c.in.Interrupt, c.in.stopped():
		end.Status = ckpt.OperationUncertain
	case r.Status == ckpt.StepFailed:
		end.Status = ckpt.OperationFailed
	}
	_, _, err := c.Client.EndOperation(ctx, c.ref, end)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil // it was not risky when it began, or no hook reported that
	}
	return err
}

// saveIfDue saves after every SaveEvery calls, and when the model has written a plan.
func (c *call) saveIfDue(ctx context.Context) error {
	if c.in.plan() == nil {
		if due, err := c.due(ctx); err != nil || !due {
			return err
		}
	}
	_, err := c.save(ctx)
	return err
}

// due reports whether SaveEvery calls have ended since the newest snapshot. A call that ends at the same moment may not
// be counted yet. Then the next call saves.
func (c *call) due(ctx context.Context) (bool, error) {
	if c.SaveEvery <= 0 {
		return false, nil
	}
	calls := int64(0)
	if c.run != nil {
		calls = c.run.StepsEnded + 1
	} else {
		run, err := c.Client.Run(ctx, c.ref)
		if err != nil {
			return false, ignore(err, ckpt.CodeNotFound)
		}
		calls = run.StepsEnded
	}
	if calls < c.SaveEvery {
		return false, nil
	}
	earlier, err := c.earlier(ctx)
	if err != nil || earlier == nil || earlier.ToolCalls > calls {
		return err == nil, err
	}
	return calls-earlier.ToolCalls >= c.SaveEvery, nil
}

// earlier returns the session's newest snapshot, nil if there is none.
func (c *call) earlier(ctx context.Context) (*Snapshot, error) {
	latest, err := c.Client.Latest(ctx, ckpt.CheckpointFilter{Agent: c.Agent, Run: c.ref.Run}, true)
	return readSnapshot(latest), ignore(err, ckpt.CodeNotFound)
}

// known returns the session's newest snapshot, and how many calls have ended.
func (c *call) known(ctx context.Context) (*Snapshot, int64, error) {
	run, err := c.Client.Run(ctx, c.ref)
	if err != nil {
		return nil, 0, ignore(err, ckpt.CodeNotFound)
	}
	earlier, err := c.earlier(ctx)
	if err != nil {
		return nil, 0, err
	}
	if run.Goal != "" && (earlier == nil || earlier.Goal == "") {
		if earlier == nil {
			earlier = &Snapshot{}
		}
		earlier.Goal = string(run.Goal)
	}
	return earlier, run.StepsEnded, nil
}

// state returns the session's state at this moment.
func (c *call) state(ctx context.Context) (ckpt.JSON, error) {
	earlier, calls, err := c.known(ctx)
	if err != nil {
		return nil, err
	}
	s, err := c.now(ctx, earlier, calls)
	if err != nil {
		return nil, err
	}
	return s.text()
}

// now returns the state at this moment, with what an earlier snapshot knew.
func (c *call) now(ctx context.Context, earlier *Snapshot, calls int64) (*Snapshot, error) {
	s := snapshot(c.in, c.product, earlier, calls)
	if c.in.Prompt == "" && c.in.SubagentID == "" { // a subagent is given no prompts
		if err := c.readPrompts(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// maxPages is how many pages of events a hook reads at once. Other programs may add events to a run without end, and
// the next snapshot reads on.
const maxPages = 4

// readPrompts takes the newest prompt from the events since the earlier snapshot. Only the event of a prompt has its
// text, and no checkpoint is saved then.
func (c *call) readPrompts(ctx context.Context, s *Snapshot) error {
	after, _ := strconv.ParseInt(s.EventsRead, 10, 64) // 0 in the snapshots of earlier versions
	for range maxPages {
		page, err := c.Client.Events(ctx, c.ref, after, ckpt.MaxLimit)
		if err != nil {
			return ignore(err, ckpt.CodeNotFound)
		}
		for i := range page.Events {
			var given struct {
				Prompt string `json:"prompt"`
			}
			e := &page.Events[i]
			if e.Type == promptEvent && json.Unmarshal(e.Payload, &given) == nil && given.Prompt != "" {
				s.LastPrompt = given.Prompt
			}
			after = e.Seq
		}
		s.EventsRead = strconv.FormatInt(after, 10)
		if page.Next == nil {
			break
		}
	}
	return nil
}

func (c *call) save(ctx context.Context) (string, error) {
	earlier, calls, err := c.known(ctx)
	if err != nil {
		return "", err
	}
	s, err := c.now(ctx, earlier, calls)
	if err != nil {
		return "", err
	}
	text, err := s.text()
	if err != nil {
		return "", err
	}
	same := s.same(earlier)
	if same && c.Files == nil {
		return "", nil
	}
	r := c.saveRequest(ctx, text, routineWait(ctx))
	if same {
		if is, err := c.differs(ctx, r.Trees); err != nil || !is {
			return "", err
		}
	}
	saved, err := c.saveFiles(ctx, r)
	if err != nil {
		return "", err
	}
	return adviceOf(c.ref, saved.Drift), nil
}

// settle ends what the turn has left open, as the transcript says. The product does not report the end of a tool call that
// was denied or stopped. What goes on in the background stays open, and what began before the daemon last started: its end
// may have been reported while the daemon was away.
func (c *call) settle(ctx context.Context) error {
	open, err := c.Client.Operations(ctx, c.ref, ckpt.ListFilter{Status: string(ckpt.OperationOpen), Limit: ckpt.MaxLimit})
	if err != nil {
		return ignore(err, ckpt.CodeNotFound)
	}
	steps, err := c.Client.Steps(ctx, c.ref, ckpt.ListFilter{Status: string(ckpt.StepStarted), Limit: ckpt.MaxLimit})
	if err != nil {
		return err
	}
	if len(open.Operations) == 0 && len(steps.Steps) == 0 {
		return nil
	}
	since := c.daemonStarted(ctx)
	onward := map[string]bool{}
	for i := range steps.Steps {
		step := &steps.Steps[i]
		end := c.lateEnd(step.Key)
		if onward[step.Key] = end.goesOn || goesOn(step.Args); onward[step.Key] || step.StartedAt.Before(since.Time) {
			continue
		}
		if err := c.closeStep(ctx, step.Key, end); err != nil {
			return err
		}
	}
	for i := range open.Operations {
		o := &open.Operations[i]
		if onward[o.Key] || o.StartedAt.Before(since.Time) {
			continue
		}
		if err := c.closeOperation(ctx, o.Key, o.Attempt, c.lateEnd(o.Key)); err != nil {
			return err
		}
	}
	return nil
}

// lateEnd says how a call ended whose end no hook has reported by the end of its turn. The model has seen the result of every
// call of a turn that ended, also that it was denied. If the transcript has that result, it counts. Otherwise nobody knows.
func (c *call) lateEnd(key string) *ending {
	if end := c.in.ending(c.product, key); end != nil {
		return end
	}
	return &ending{why: "its turn ended, and nothing says how it ended: it may have taken effect"}
}

func encodedText(text string) ckpt.JSON {
	b, _ := json.Marshal(text) // a text, which cannot fail
	return b
}

// daemonStarted returns when the daemon started, zero if it does not say so in half of the hook's remaining time. On a
// large database it can take longer.
func (c *call) daemonStarted(ctx context.Context) ckpt.Time {
	if end, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	status, err := c.Client.Status(ctx)
	if err != nil {
		return ckpt.Time{}
	}
	return status.StartedAt
}

func ignore(err error, code ckpt.Code) error {
	if ckpt.CodeOf(err) == code {
		return nil
	}
	return err
}

// over ends the run. A session that continues later begins the run again. A session without a run had nothing to record: Claude
// Code reports the end of one also after `claude mcp list`.
func (c *call) over(ctx context.Context) error {
	if !c.owned() || c.run == nil {
		return nil
	}
	end := ckpt.EndRequest{Status: ckpt.RunCompleted}
	if c.in.Reason != "" {
		reason, err := json.Marshal(map[string]string{"reason": c.in.Reason})
		if err != nil {
			return fmt.Errorf("the reason for the end: %w", err)
		}
		end.Result = reason
	}
	// A risky call that was stopped, for example by Ctrl-C, has an unknown outcome, and so has one that nobody has
	// resolved since the session was continued. The next session is told about it, because the run is not completed.
	for _, status := range []ckpt.OperationStatus{ckpt.OperationOpen, ckpt.OperationUncertain} {
		left, err := c.Client.Operations(ctx, c.ref, ckpt.ListFilter{Status: string(status), Limit: 1})
		if err == nil && len(left.Operations) > 0 {
			end = ckpt.EndRequest{Status: ckpt.RunInterrupted}
			break
		}
	}
	end.State = c.lastState(ctx)
	if _, _, err := c.Client.EndRun(ctx, c.ref, end); err != nil || c.Files == nil || end.State == nil {
		return ignore(err, ckpt.CodeNotFound)
	}
	latest, err := c.newest(ctx)
	if err == nil && latest != nil {
		_, err = c.Files.Keep(c.Project.Folder, c.ref, latest.ID) // nobody waits for it, and it is attached when it is there
	}
	return err
}

// lastState returns the state to save with the end of the run, in the same write. It is nil if the newest checkpoint has
// it already, unless files belong to it, or if it cannot be read: the end must not wait for it.
func (c *call) lastState(ctx context.Context) ckpt.JSON {
	earlier, calls, err := c.known(ctx)
	if err != nil {
		return nil
	}
	s, err := c.now(ctx, earlier, calls)
	if err != nil || s.same(earlier) && c.Files == nil {
		return nil
	}
	text, _ := s.text()
	return text
}
