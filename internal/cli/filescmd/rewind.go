package filescmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// RewindCommand is the command rewind.
type RewindCommand struct {
	To      int    `arg:"" optional:"" help:"Go back to before this prompt; 1 is the newest. Default: list, and at a terminal ask." placeholder:"N"`
	Agent   string `help:"Whose session it was. Default: $$CKPTSIDECAR_AGENT, then the agent of the project." placeholder:"NAME"`
	InRun   string `name:"run" help:"The run of the session. Default: the last one with files." placeholder:"NAME"`
	Root    string `help:"The folder. Default: the repository of the present one, else that." placeholder:"DIR"`
	Yes     bool   `short:"y" help:"Go back. Without this flag, show the plan, and ask on a terminal."`
	Undo    bool   `help:"Undo the last rewind or restore of the folder."`
	Remove  bool   `help:"Also remove new files that no tool of the run wrote."`
	Partial bool   `help:"Restore from an incomplete list of files too."`
	allowed
}

// Help returns the additional text of `rewind --help`.
func (c *RewindCommand) Help() string {
	return "It lists the prompts of a session whose hook was installed with --files. Going back before one brings back the files that " +
		"the folder had when it was given, and makes the checkpoint from then the one that the run goes on from. Nothing is lost: " +
		"`rewind --undo` takes it back. It ends with 4 where files have changed since."
}

// Prompted is a prompt of a session, and the checkpoint from the time when it was given.
type Prompted struct {
	Number     int       `json:"number"` // 1 is the newest
	At         ckpt.Time `json:"at"`
	Prompt     string    `json:"prompt"`
	Checkpoint string    `json:"checkpoint"` // "" if no checkpoint has the files of that time
	// TakenAfterMS is how long after the prompt its files were taken, if a call of a tool had begun by then. null otherwise.
	TakenAfterMS *int64 `json:"taken_after_ms"`
}

// session is the run whose prompts are listed.
type session struct {
	Agent   string     `json:"agent"`
	Run     string     `json:"run"`
	Root    string     `json:"root"`
	Prompts []Prompted `json:"prompts"` // newest first
}

// Run restores the files, lists the prompts, or undoes the last restore.
func (c *RewindCommand) Run(ctx context.Context, a *cli.App) error {
	if err := cli.Checked(cli.Given(c.Agent, ckpt.CheckAgentName), cli.Given(c.InRun, ckpt.CheckLife)); err != nil {
		return err
	}
	p, err := placeOf(a, c.Root)
	if err != nil {
		return err
	}
	if c.Undo {
		return p.undo(ctx, a, c.allowed, false)
	}
	s, err := c.session(ctx, a, p)
	if err != nil {
		return err
	}
	if c.To == 0 {
		if a.JSON {
			return a.WriteJSON(s)
		}
		s.text(a)
		if !a.Interactive || len(s.Prompts) == 0 {
			return nil
		}
	}
	return c.rewind(ctx, a, s)
}

// rewind restores the files from before the prompt that was named, or that the person
// chooses now.
func (c *RewindCommand) rewind(ctx context.Context, a *cli.App, s *session) error {
	in := bufio.NewReader(a.Stdin)
	asking := c.To == 0
	if asking {
		answer := ask(a, in, "Go back before which prompt? Its number, or nothing to leave: ")
		if answer == "" {
			return nil
		}
		n, err := strconv.Atoi(answer)
		if err != nil {
			return cli.Usagef("%q is not the number of a prompt", answer)
		}
		c.To = n
	}
	if c.To < 1 || c.To > len(s.Prompts) {
		return cli.Usagef("there is no prompt %d: there are %d", c.To, len(s.Prompts))
	}
	prompt := s.Prompts[c.To-1]
	if prompt.Checkpoint == "" {
		return ckpt.Errorf(ckpt.CodeNotFound, "no checkpoint has the files from before that prompt: choose another prompt")
	}
	r, err := newRestorer(ctx, a, prompt.Checkpoint, s.Root)
	if err != nil {
		return err
	}
	defer r.folder.Close()
	r.labels = ckpt.Labels{hook.RestoredTo: fmt.Sprintf("number %d from the newest, of %s", prompt.Number, prompt.At),
		hook.RestoredPrompt: oneLine(prompt.Prompt)}
	if err := c.checkFolder(r); err != nil {
		return err
	}
	if !a.JSON {
		term.Printf(a.Stdout, "%s %s\n", a.Out.Bold("before the prompt"), oneLine(prompt.Prompt))
		r.saidText(ctx)
	}
	o := (&restoreCmd{Remove: c.Remove, Partial: c.Partial, allowed: c.allowed}).options()
	apply := c.Yes
	if asking && !apply {
		if err := r.do(ctx, o, false); err != nil {
			return err
		}
		answer := strings.ToLower(ask(a, in, "Bring these files back? [y/N] "))
		if apply = answer == "y" || answer == "yes"; !apply {
			a.Tell("nothing was changed")
			return nil
		}
	}
	if err := r.do(ctx, o, apply); err != nil || !apply {
		return err
	}
	// From now on, the run continues from there: its next checkpoint is a child of this
	// one.
	_, _, err = a.Client().Restore(ctx, ckpt.RestoreRequest{
		Agent: s.Agent, Run: s.Run, Checkpoint: prompt.Checkpoint, Reason: "rewind to before a prompt",
	})
	return err
}

// checkFolder refuses to put the files of one folder into another that nobody has named. A
// folder that was moved is no other.
func (c *RewindCommand) checkFolder(r *restorer) error {
	if c.Root != "" || r.tree.Root == r.place.root {
		return nil
	}
	if _, err := os.Lstat(r.tree.Root); err != nil {
		return nil
	}
	return ckpt.Errorf(ckpt.CodeConflict, "the session's files were kept below %s, and not below %s: go there, or name the folder with --root",
		r.tree.Root, r.place.root)
}

func ask(a *cli.App, in *bufio.Reader, question string) string {
	term.Printf(a.Stderr, "%s", question)
	line, _ := in.ReadString('\n')
	return strings.TrimSpace(line)
}

// saidText shows the last messages before the checkpoint.
func (r *restorer) saidText(ctx context.Context) {
	state, err := r.a.Client().State(ctx, r.checkpoint.ID)
	var s hook.Snapshot
	if err != nil || json.Unmarshal(state, &s) != nil {
		return
	}
	if s.LastMessage != "" {
		term.Printf(r.a.Stdout, "%s %s\n", r.a.Out.Bold("the model had said"), oneLine(s.LastMessage))
	}
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > 100 {
		s = string(runes[:99]) + "…"
	}
	return s
}

func (s *session) text(a *cli.App) {
	if len(s.Prompts) == 0 {
		a.Tell("the run %s of %s has no prompts", s.Run, s.Agent)
		return
	}
	without := 0
	t := term.NewTable(">N", "WHEN", "~PROMPT", "#FILES")
	for i := len(s.Prompts) - 1; i >= 0; i-- {
		p := &s.Prompts[i]
		files := p.Checkpoint
		if files == "" {
			files = "none"
			without++
		}
		if p.TakenAfterMS != nil {
			files += fmt.Sprintf(", taken %.1f s after the prompt", float64(*p.TakenAfterMS)/1000)
		}
		t.Add(strconv.Itoa(p.Number), a.Out.Time(p.At), oneLine(p.Prompt), files)
	}
	t.Write(a.Stdout, a.Out)
	if without > 0 {
		a.Tell("%s without files: the hook had no --files then, or the prompts are older than the policy's pre_operation_keep or --prompts of the hook",
			term.Count(without, "prompt"))
	}
}

// session finds the run and its prompts.
func (c *RewindCommand) session(ctx context.Context, a *cli.App, p *place) (*session, error) {
	agent, err := agentOf(a, c.Agent, p.root)
	if err != nil {
		return nil, err
	}
	s := &session{Agent: agent, Run: a.InRun(agent, c.InRun), Root: p.root, Prompts: []Prompted{}}
	var withFiles []ckpt.Checkpoint
	if s.Run != "" {
		withFiles, err = checkpointsWithFiles(ctx, a, agent, s.Run)
	} else {
		s.Run, withFiles, err = lastRunWithFiles(ctx, a, agent)
	}
	if err != nil {
		return nil, err
	}
	var prompts []ckpt.Event
	err = cli.EachPage(int64(0), func(after int64) (int64, bool, error) {
		page, err := a.Client().Events(ctx, ckpt.RunRef{Agent: agent, Run: s.Run}, after, ckpt.MaxLimit)
		if err != nil {
			return 0, false, err
		}
		for _, e := range page.Events {
			if e.Type == "prompt" {
				prompts = append(prompts, e)
			}
		}
		if page.Next == nil {
			return 0, false, nil
		}
		return *page.Next, true, nil
	})
	if err != nil {
		return nil, err
	}
	s.Prompts = promptsWith(prompts, withFiles)
	return s, s.late(ctx, a, withFiles)
}

// late finds the prompts whose files were taken after a call of a tool had begun, which may have changed them.
func (s *session) late(ctx context.Context, a *cli.App, withFiles []ckpt.Checkpoint) error {
	var begun []ckpt.Time
	err := cli.EachPage("", func(before string) (string, bool, error) {
		page, err := a.Client().Steps(ctx, ckpt.RunRef{Agent: s.Agent, Run: s.Run}, ckpt.ListFilter{Before: before, Limit: ckpt.MaxLimit})
		if err != nil {
			return "", false, err
		}
		for i := range page.Steps {
			begun = append(begun, page.Steps[i].StartedAt)
		}
		return string(page.Next), page.Next != "", nil
	})
	if err != nil {
		return err
	}
	for i := range s.Prompts {
		p := &s.Prompts[i]
		if !slices.ContainsFunc(withFiles, func(c ckpt.Checkpoint) bool { return c.ID == p.Checkpoint && c.Labels["prompt"] != "" }) {
			continue
		}
		page, err := a.Client().Files(ctx, ckpt.FilesFilter{Checkpoint: p.Checkpoint, Limit: 1})
		if err != nil || len(page.Trees) == 0 {
			return err
		}
		p.TakenAfterMS = takenAfter(p.At, page.Trees[0].CapturedAt, begun)
	}
	return nil
}

// takenAfter returns how many milliseconds after a prompt its files were taken, and nil if no call of a tool had begun by then.
func takenAfter(prompt, taken ckpt.Time, begun []ckpt.Time) *int64 {
	if !slices.ContainsFunc(begun, func(t ckpt.Time) bool { return t.After(prompt.Time) && t.Before(taken.Time) }) {
		return nil
	}
	ms := taken.Sub(prompt.Time).Milliseconds()
	return &ms
}

// checkpointsWithFiles returns the checkpoints of a run that name files, oldest first.
func checkpointsWithFiles(ctx context.Context, a *cli.App, agent, run string) (list []ckpt.Checkpoint, err error) {
	err = cli.EachPage("", func(before string) (string, bool, error) {
		page, err := a.Client().Checkpoints(ctx, ckpt.CheckpointFilter{Agent: agent, Run: run, Before: before, Limit: ckpt.MaxLimit})
		if err != nil {
			return "", false, err
		}
		for _, c := range page.Checkpoints {
			if len(c.Trees) > 0 {
				list = append(list, c)
			}
		}
		return string(page.Next), page.Next != "", nil
	})
	slices.Reverse(list)
	return list, err
}

// recentRuns is how many sessions are searched for one with files.
const recentRuns = 50

func lastRunWithFiles(ctx context.Context, a *cli.App, agent string) (run string, list []ckpt.Checkpoint, err error) {
	sessions := 0
	err = cli.EachPage("", func(before string) (string, bool, error) {
		page, err := a.Client().Runs(ctx, ckpt.RunFilter{Agent: agent, Before: before, Limit: recentRuns})
		if err != nil {
			return "", false, err
		}
		for _, r := range page.Runs {
			if r.ParentRun != "" {
				continue // a session can have any number of sub-agents
			}
			if list, err = checkpointsWithFiles(ctx, a, agent, r.Run); err != nil || len(list) > 0 {
				run = r.Run
				return "", false, err
			}
			sessions++
		}
		return string(page.Next), page.Next != "" && sessions < recentRuns, nil
	})
	if err == nil && run == "" {
		err = ckpt.Errorf(ckpt.CodeNotFound,
			"no session of %s has files: `ckptsidecar hook install --for PRODUCT --files` keeps them from then on", agent)
	}
	return run, list, err
}

// promptsWith assigns to each prompt the checkpoint with the files of its time: the one
// that the prompt has made, else the newest before it.
func promptsWith(prompts []ckpt.Event, withFiles []ckpt.Checkpoint) []Prompted {
	list := make([]Prompted, 0, len(prompts))
	for i, e := range prompts {
		var payload struct {
			Prompt string `json:"prompt"`
		}
		_ = json.Unmarshal(e.Payload, &payload) // a prompt without its text still counts
		p := Prompted{Number: len(prompts) - i, At: e.At, Prompt: payload.Prompt}
		for _, c := range withFiles {
			made := c.Labels["prompt"] == fmt.Sprint(e.Seq)
			// The checkpoints are in the order of the run. From that of a later prompt on, none is of this one,
			// whatever their times say: the clock may have been set back.
			if of, err := strconv.ParseInt(c.Labels["prompt"], 10, 64); err == nil && of > e.Seq {
				break
			}
			if made || !c.CreatedAt.After(e.At.Time) && c.Labels["event"] != "files_undo" {
				p.Checkpoint = c.ID
			}
			if made {
				break
			}
		}
		list = append(list, p)
	}
	slices.Reverse(list)
	return list
}
