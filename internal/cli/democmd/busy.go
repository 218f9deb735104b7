package democmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// busyHost fills a daemon with the runs of a busy host, through the calls that every agent uses.
// All data is invented: texts, times, tokens and costs.
type busyHost struct {
	a    *cli.App
	pace float64 // how many times faster the agents work than they report
	jobs sync.WaitGroup
	mu   sync.Mutex
	err  error
}

// player is one simulated agent that works on one run.
type player struct {
	*busyHost
	client *client.Client
	rand   *rand.Rand
	part   part
	ref    ckpt.RunRef
	owner  *holder
	state  demoState
	saved  []string // ids of its checkpoints
	failed int
}

// part is the script of a player.
type part struct {
	agent, run, workflow, goal string
	labels                     ckpt.Labels
	steps                      int
	tools                      []string
	errors                     float64        // share of steps that fail
	failing                    string         // the error of these steps, always the same; "" for several errors
	dies                       int            // after this step the player loses its owner; 0 for never
	operations                 map[int]string // names of the risky steps
	diesIn                     int            // the player loses its owner in the operation of this step
	slowAfter                  int            // from this step on, the player is slow
	leaks                      int            // at this step, a key gets into the state
	forgets                    int            // at this step, the player loses its plan
	asks                       int            // at this step, the player asks a person
	ends                       ckpt.RunStatus // "" leaves the run running
}

// demoState is the state of a simulated agent.
type demoState struct {
	Goal      string            `json:"goal"`
	Phase     string            `json:"phase"`
	Iteration int               `json:"iteration"`
	Plan      []demoTask        `json:"plan,omitempty"`
	Usage     demoUsage         `json:"usage"`
	Env       map[string]string `json:"env,omitempty"`
	Messages  []demoMessage     `json:"messages"`
}

type demoTask struct {
	Task   string `json:"task"`
	Status string `json:"status"`
}

type demoUsage struct {
	Input  int64   `json:"input_tokens"`
	Output int64   `json:"output_tokens"`
	Cost   float64 `json:"cost_usd"`
}

type demoMessage struct {
	Role    string `json:"role"`
	Tool    string `json:"tool,omitempty"`
	Content string `json:"content"`
}

// fillBusyHost implements `demo --data`.
func fillBusyHost(ctx context.Context, a *cli.App, pace float64) error {
	have, err := a.Client().Agents(ctx, ckpt.AgentFilter{Limit: 1})
	if err != nil {
		return err
	}
	if len(have.Agents) > 0 {
		return ckpt.Errorf(ckpt.CodeConflict, "this daemon already has agents, and the demo does not mix with real data. "+
			"Start a daemon of its own for it: ckptsidecar serve --db demo/ckpt.db --socket demo/sock")
	}
	h := &busyHost{a: a, pace: pace}
	if !a.JSON {
		term.Printf(a.Stdout, "Made-up agents work, %.0f times faster than they say.\n", pace)
	}
	began := time.Now()
	if err := h.policies(ctx); err != nil {
		return err
	}
	h.perform(ctx)
	h.jobs.Wait()
	if h.err != nil {
		return h.err
	}
	if err := h.operator(ctx); err != nil {
		return err
	}
	page, err := a.Client().Runs(ctx, ckpt.RunFilter{Limit: ckpt.MaxLimit})
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(map[string]any{"runs": len(page.Runs), "seconds": time.Since(began).Seconds()})
	}
	look := "ckptsidecar console"
	if a.Socket != "" {
		look += " --socket " + ckpt.ShellWord(a.Socket)
	}
	term.Printf(a.Stdout, "%s in %.0f s. Look at them with: %s\n", term.Count(len(page.Runs), "run"), time.Since(began).Seconds(), look)
	return nil
}

func (h *busyHost) policies(ctx context.Context) error {
	for agent, own := range map[string]string{
		"coder":       `{"routine_keep": 60, "budget": {"cost_usd": 30}}`,
		"release-bot": `{"autoresume": false}`,
		"researcher":  `{"routine_keep": 5, "budget": {"steps": 14}}`,
		"reviewer":    `{"max_bytes": 4000000}`,
	} {
		if _, err := h.a.Client().SetOwnPolicy(ctx, agent, ckpt.JSON(own)); err != nil {
			return err
		}
	}
	return nil
}

var (
	codeTools   = []string{"read_file", "search", "bash", "edit_file", "bash", "run_tests"}
	webTools    = []string{"web_search", "fetch", "notes"}
	travelTools = []string{"flights", "hotels", "calendar"}
)

// perform starts all parts; each runs in its own goroutine.
func (h *busyHost) perform(ctx context.Context) {
	fix := part{
		agent: "coder", run: "fix-1482", workflow: "fix", goal: "Fix issue #1482 so that the hidden tests pass",
		steps: 88, tools: codeTools, errors: .05,
		labels:     ckpt.Labels{"repo": "shop", "team": "core"},
		operations: map[int]string{24: "write files", 52: "run migrations", 88: "push branch"}, forgets: 70, dies: 38,
	}
	h.start(ctx, 0, fix, func(p *player) error { return p.crashTwice(ctx) })
	h.start(ctx, 0, part{
		agent: "coder", run: "fix-1490", workflow: "fix", goal: "Fix issue #1490: the cart loses its last item",
		steps: 70, tools: codeTools, errors: .06,
		labels: ckpt.Labels{"repo": "shop"}, operations: map[int]string{31: "write files"}, ends: ckpt.RunCompleted,
	}, func(p *player) error { return p.forkTwice(ctx) })
	h.start(ctx, 0, part{
		agent: "reviewer", run: "pr-311", workflow: "review", goal: "Review pull request 311: a new way to sign in",
		steps: 60, tools: codeTools, errors: .08,
		labels: ckpt.Labels{"repo": "shop"}, slowAfter: 20,
	}, nil)
	h.start(ctx, .2, part{
		agent: "reviewer", run: "pr-318", workflow: "review", goal: "Review pull request 318: payment by invoice",
		steps: 34, tools: codeTools, leaks: 12,
		operations: map[int]string{20: "comment on the page"},
	}, nil)
	h.start(ctx, .15, part{
		agent: "release-bot", run: "v5.2.1", workflow: "release",
		goal: "Cut release 5.2.1: changelog, tag, packages, upload", steps: 40, tools: codeTools,
		operations: map[int]string{6: "tag release", 30: "upload packages"}, diesIn: 30,
	}, nil)
	h.start(ctx, .3, part{
		agent: "release-bot", run: "v5.3.0-rc1", workflow: "release", goal: "Cut release candidate 5.3.0-rc1", steps: 60, tools: codeTools,
		operations: map[int]string{9: "tag release"}, dies: 26,
	}, nil)
	h.start(ctx, .1, part{
		agent: "indexer", run: "nightly", workflow: "nightly", goal: "Index 25,775 documents into the search cluster",
		steps: 50, tools: []string{"scan", "embed", "write"},
		operations: map[int]string{40: "swap index alias"}, diesIn: 40,
	}, nil)
	for i, failing := range []string{"", "429 Too Many Requests", "", "the tool answered with an empty list", "", ""} {
		share := map[bool]float64{true: .7, false: .05}[failing != ""]
		ends := map[bool]ckpt.RunStatus{true: ckpt.RunFailed, false: ckpt.RunCompleted}[failing != ""]
		if i == 5 {
			ends = ""
		}
		h.start(ctx, .1*float64(i), part{
			agent: "researcher", run: fmt.Sprintf("q-%d", 1181+i), workflow: "research", goal: fmt.Sprintf("Answer question %d with sources", 1181+i),
			steps: 14 + i, tools: webTools, errors: share, failing: failing, ends: ends, labels: ckpt.Labels{"queue": "public"},
		}, nil)
	}
	for i := range 6 {
		p := part{
			agent: "concierge", run: fmt.Sprintf("trip-%d", 301+i), workflow: "travel",
			goal: fmt.Sprintf("Plan trip %d", 301+i), steps: 10 + i, tools: travelTools, ends: ckpt.RunCompleted,
		}
		if i == 5 {
			p.asks, p.ends = 6, ""
		}
		h.start(ctx, .12*float64(i), p, nil)
	}
}

// start plays a part after a share of the total time, in its own way if it has one.
func (h *busyHost) start(ctx context.Context, after float64, p part, way func(*player) error) {
	seed := uint64(len(p.agent)*1000 + len(p.run))
	for _, c := range p.agent + p.run {
		seed = seed*131 + uint64(c)
	}
	x := &player{
		busyHost: h, client: &client.Client{Socket: h.a.Socket}, rand: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // made-up data
		part: p, ref: ckpt.RunRef{Agent: p.agent, Run: p.run},
	}
	x.state = demoState{Goal: p.goal, Phase: "explore", Messages: []demoMessage{{Role: "user", Content: p.goal}}}
	for _, task := range []string{"understand the task", "reproduce it", "find the cause", "change it", "check the result"} {
		x.state.Plan = append(x.state.Plan, demoTask{task, "pending"})
	}
	h.jobs.Go(func() {
		defer x.client.Close()
		err := periodic.Wait(ctx, time.Duration(after*600/h.pace*float64(time.Second)))
		if err == nil {
			err = x.begin(ctx, "")
		}
		if err == nil && way != nil {
			err = way(x)
		} else if err == nil {
			err = x.work(ctx, 1)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.err = errors.Join(h.err, fmt.Errorf("%s %s: %w", p.agent, p.run, err))
		}
	})
}

// begin registers the run. If the run must lose its owner, its owner is a process that can be
// killed. The other runs have no process, and stay as they are when the demo ends.
func (p *player) begin(ctx context.Context, from string) error {
	r := ckpt.RunRequest{
		Agent: p.part.agent, Run: p.part.run, Workflow: ckpt.Ref(p.part.workflow), Goal: ckpt.Ref(p.part.goal),
		Labels: p.part.labels, ForkFrom: ckpt.Ref(from),
	}
	if p.part.dies > 0 || p.part.diesIn > 0 {
		var err error
		if p.owner, err = p.hold(ctx); err != nil {
			return err
		}
		r.PID = p.owner.cmd.Process.Pid
	}
	run, _, err := p.client.StartRun(ctx, r)
	if err != nil {
		return err
	}
	p.ref.Epoch = &run.Epoch
	return nil
}

// holder is a process that does nothing, as the owner of a run.
type holder struct {
	cmd   *exec.Cmd
	alive io.Closer
}

func (h *busyHost) hold(ctx context.Context) (*holder, error) {
	cmd, err := h.a.Again(ctx, "demo-agent", "--hold")
	if err != nil {
		return nil, err
	}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &holder{cmd, alive}, cmd.Start()
}

// die kills the owner with SIGKILL and waits until the daemon has noticed.
func (p *player) die(ctx context.Context) error {
	_ = p.owner.cmd.Process.Kill()
	_ = p.owner.cmd.Wait()
	_ = p.owner.alive.Close()
	for {
		run, err := p.client.Run(ctx, p.ref)
		if err != nil || run.Status == ckpt.RunInterrupted {
			return err
		}
		if err := periodic.Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// resume takes the run over for a new owner, and continues where the plan says.
func (p *player) resume(ctx context.Context) error {
	var err error
	if p.owner, err = p.hold(ctx); err != nil {
		return err
	}
	plan, _, err := p.client.Resume(ctx, ckpt.ResumeRequest{Agent: p.ref.Agent, Run: p.ref.Run,
		PID: p.owner.cmd.Process.Pid, Reason: "the supervisor starts it again"})
	if err != nil {
		return err
	}
	if !plan.Claimed {
		return fmt.Errorf("the run was not claimed: %s %v", plan.Verdict, plan.Reasons)
	}
	p.ref.Epoch = &plan.Epoch
	if plan.Checkpoint == nil {
		return nil
	}
	return json.Unmarshal(plan.Checkpoint.State, &p.state)
}

// crashTwice is a long story: a crash, a crash inside an operation that a person resolves, and
// one that nobody has resolved yet.
func (p *player) crashTwice(ctx context.Context) error {
	if err := p.work(ctx, 1); err != nil {
		return err
	}
	for _, next := range []int{52, 88} {
		if err := periodic.Wait(ctx, time.Duration(90/p.pace*float64(time.Second))); err != nil {
			return err
		}
		if err := p.resume(ctx); err != nil {
			return err
		}
		p.part.dies, p.part.diesIn = 0, next
		if err := p.work(ctx, p.state.Iteration+1); err != nil {
			return err
		}
		if next == 52 {
			if err := p.resolve(ctx, 52); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *player) resolve(ctx context.Context, step int) error {
	_, _, err := p.client.ResolveOperation(ctx, p.ref, ckpt.OperationResolution{
		Key: fmt.Sprintf("op-%03d", step), Choice: ckpt.ChoiceItDidNot,
		Reason: "looked into the database: there is no such table",
	})
	return err
}

// forkTwice works to the end, pins two checkpoints, and makes two forks from earlier ones.
func (p *player) forkTwice(ctx context.Context) error {
	if err := p.work(ctx, 1); err != nil {
		return err
	}
	pinned := true
	for _, i := range []int{24, 49} {
		labels := ckpt.Labels{"good": "tests pass"}
		if _, err := p.client.Patch(ctx, p.saved[i], ckpt.CheckpointPatch{Pinned: &pinned, Labels: &labels}); err != nil {
			return err
		}
	}
	for i, at := range []int{39, 43} {
		other := *p
		other.part.run, other.part.labels = p.part.run+"-"+string(rune('b'+i)), ckpt.Labels{"repo": "shop", "try": string(rune('b' + i))}
		other.part.steps, other.part.ends, other.part.operations = at+22, ckpt.RunStatus(""), nil
		if i == 1 {
			other.part.ends, other.part.errors = ckpt.RunFailed, .3
		}
		other.ref, other.saved = ckpt.RunRef{Agent: p.ref.Agent, Run: other.part.run}, nil
		if err := other.begin(ctx, p.saved[at]); err != nil {
			return err
		}
		state, err := p.client.State(ctx, p.saved[at])
		if err == nil {
			err = json.Unmarshal(state, &other.state)
		}
		if err == nil {
			err = other.work(ctx, other.state.Iteration+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// work does the steps from the given one on.
func (p *player) work(ctx context.Context, from int) error {
	for i := from; i <= p.part.steps; i++ {
		lost, err := p.step(ctx, i)
		if lost || err != nil {
			return err
		}
		if i == p.part.dies {
			return p.die(ctx)
		}
		if i == p.part.asks {
			return p.ask(ctx)
		}
	}
	if p.part.ends == "" {
		return nil
	}
	end := ckpt.EndRequest{Epoch: p.ref.Epoch, Status: p.part.ends, State: p.encoded(), Result: ckpt.JSON(`{"outcome": "made up"}`)}
	if p.part.ends == ckpt.RunFailed {
		end.Error, end.Result = "it gave up after too many errors", nil
	}
	_, _, err := p.client.EndRun(ctx, p.ref, end)
	return err
}

// step does one step. lost is true if the owner died in it.
func (p *player) step(ctx context.Context, i int) (lost bool, err error) {
	tool := p.part.tools[i%len(p.part.tools)]
	key := fmt.Sprintf("%03d-%s", i, tool)
	took := math.Min(60, math.Exp(p.rand.NormFloat64()*.7+1.9))
	if p.part.slowAfter > 0 && i > p.part.slowAfter {
		took *= 4
	}
	operation, risky := p.part.operations[i]
	opKey := fmt.Sprintf("op-%03d", i)
	if risky {
		_, _, err := p.client.BeginOperation(ctx, p.ref, ckpt.OperationRequest{Key: opKey, Name: operation, Epoch: p.ref.Epoch, State: p.encoded()})
		if err != nil {
			return false, err
		}
	}
	args, _ := json.Marshal(map[string]string{"input": fmt.Sprintf("%s, part %d", tool, i)})
	if _, _, err := p.client.BeginStep(ctx, p.ref, ckpt.StepRequest{Key: key, Name: tool, Epoch: p.ref.Epoch, Args: args}); err != nil {
		return false, err
	}
	if err := periodic.Wait(ctx, time.Duration(took/p.pace*float64(time.Second))); err != nil {
		return false, err
	}
	if risky && i == p.part.diesIn {
		return true, p.die(ctx)
	}
	if err := p.finish(ctx, i, key, tool, took); err != nil {
		return false, err
	}
	if risky {
		if _, _, err := p.client.EndOperation(ctx, p.ref, ckpt.OperationEnd{
			Key: opKey, Epoch: p.ref.Epoch, Status: ckpt.OperationSucceeded,
		}); err != nil {
			return false, err
		}
	}
	return false, p.save(ctx, i, key)
}

// finish ends a step, successfully or not.
func (p *player) finish(ctx context.Context, i int, key, tool string, took float64) error {
	failed := p.rand.Float64() < p.part.errors && i > 3
	input, output := int64(900+400*len(p.state.Messages)), int64(60+p.rand.IntN(600))
	cost := float64(input)*3e-6 + float64(output)*15e-6
	progress, ms := float64(i)/float64(p.part.steps), int64(took*1000)
	r := ckpt.StepRequest{
		Key: key, Epoch: p.ref.Epoch, Status: ckpt.StepSucceeded, DurationMS: &ms, InputTokens: &input,
		OutputTokens: &output, CostUSD: &cost, Progress: &progress,
	}
	text := fmt.Sprintf("%s gave %d lines for part %d of %s", tool, 3+p.rand.IntN(200), i, p.part.goal)
	if failed {
		p.failed++
		text = p.part.failing
		if text == "" {
			text = []string{"2 tests failed: test_total, test_empty", "no such file: src/basket.py", "timeout after 30 s"}[p.rand.IntN(3)]
		}
		r.Status, r.Error = ckpt.StepFailed, ckpt.Ref(text)
	}
	r.Result, _ = json.Marshal(text)
	if _, _, err := p.client.FinishStep(ctx, p.ref, r); err != nil {
		return err
	}
	s := &p.state
	s.Iteration, s.Usage.Input, s.Usage.Output = i, s.Usage.Input+input, s.Usage.Output+output
	s.Usage.Cost = math.Round((s.Usage.Cost+cost)*1e4) / 1e4
	s.Phase = []string{"explore", "reproduce", "edit", "test", "submit"}[min(4, int(progress*5))]
	for j := range s.Plan {
		switch share := progress * float64(len(s.Plan)); {
		case share >= float64(j+1):
			s.Plan[j].Status = "done"
		case share >= float64(j):
			s.Plan[j].Status = "active"
		}
	}
	s.Messages = append(s.Messages, demoMessage{"assistant", tool, fmt.Sprintf("%s, part %d", tool, i)}, demoMessage{"tool", tool, text})
	return nil
}

func (p *player) encoded() []byte {
	b, _ := json.Marshal(p.state)
	return b
}

// save saves the state, with the faults that the part wants in it.
func (p *player) save(ctx context.Context, i int, key string) error {
	if i == p.part.leaks {
		p.state.Env = map[string]string{"API_KEY": "sk-demo" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"}
	}
	if i == p.part.forgets {
		p.state.Plan = nil
	}
	r := &ckpt.SaveRequest{
		Agent: p.ref.Agent, Run: p.ref.Run, Kind: ckpt.KindRoutine, Epoch: p.ref.Epoch, Step: ckpt.Ref(key), ContentType: ckpt.ContentTypeJSON,
		State: p.encoded(), Metadata: json.RawMessage(`{"made_up": true}`),
	}
	if p.failed > 0 && i%9 == 4 {
		r.Kind, p.failed = ckpt.KindRecovery, 0
	}
	if i%20 == 0 {
		r.Labels = ckpt.Labels{"phase": p.state.Phase}
	}
	saved, err := p.client.Save(ctx, r)
	if err != nil {
		return err
	}
	p.saved = append(p.saved, saved.ID)
	return nil
}

// ask puts a question to a person, with choices and a form.
func (p *player) ask(ctx context.Context) error {
	_, _, err := p.client.AskQuestion(ctx, ckpt.QuestionRequest{
		Agent: p.ref.Agent, Run: p.ref.Run, Epoch: p.ref.Epoch, Key: "hotel", Question: "Which hotel shall it book?",
		Reason: "Both are within the budget, and neither can be canceled later.", Choices: ckpt.Choices{"Harbor House", "Station Hotel", "neither"},
		Schema: ckpt.JSON(`{"type": "object", "required": ["nights"], "properties": {
			"nights": {"type": "integer", "title": "Nights"}, "breakfast": {"type": "boolean", "title": "With breakfast"},
			"room": {"enum": ["quiet", "with a view"], "title": "Room"}, "note": {"type": "string", "title": "A note for the hotel"}}}`),
	})
	return err
}

// operator dismisses every second finding of some runs, as a person would.
func (h *busyHost) operator(ctx context.Context) error {
	why := map[string]string{"latency_drift": "the build machine was busy", "budget": "the budget was raised",
		"error_streak": "the agent probes on purpose"}
	n := 0
	for _, agent := range []string{"researcher", "coder"} {
		runs, err := h.a.Client().Runs(ctx, ckpt.RunFilter{Agent: agent, Limit: ckpt.MaxLimit})
		if err != nil {
			return err
		}
		for _, run := range runs.Runs {
			report, err := h.a.Client().Drift(ctx, ckpt.DriftFilter{Agent: agent, Run: run.Run})
			if err != nil {
				return err
			}
			for i := range report.Findings {
				if n++; n%2 == 0 {
					continue
				}
				reason := why[report.Findings[i].Rule]
				if reason == "" {
					reason = "looked at"
				}
				if _, _, err := h.a.Client().Dismiss(ctx, ckpt.DismissRequest{ID: report.Findings[i].ID, Reason: reason}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkPace refuses a pace that is too fast to see anything, or too slow to wait for.
func checkPace(pace float64) error {
	if pace < 1 || pace > 100_000 {
		return cli.Usagef("--pace must be between 1 and 100000; got %g", pace)
	}
	return nil
}
