package filescmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/files"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// SnapCommand is the command files snap.
type SnapCommand struct {
	Folder   string   `arg:"" optional:"" help:"The folder. Default: the repository of the present one, else that." placeholder:"DIR"`
	Agent    string   `help:"Whose files they are. Default: $$CKPTSIDECAR_AGENT, then the agent of the project." placeholder:"NAME"`
	InRun    string   `name:"run" help:"The run that gets the checkpoint. Default: main, or under exec its run." placeholder:"NAME"`
	Epoch    *int64   `help:"The run's epoch." placeholder:"N"`
	Exclude  []string `sep:"none" help:"Skip matching files, in addition to $$CKPTSIDECAR_FILES_EXCLUDE. May be repeated." placeholder:"PATTERN"`
	Include  []string `sep:"none" help:"Save matching ignored files, besides $$CKPTSIDECAR_FILES_INCLUDE. May be repeated." placeholder:"PATTERN"`
	TreeOnly bool     `xor:"how" help:"Create no checkpoint. The tree stays for an hour, and a save may refer to it."`
	Attach   string   `xor:"how" help:"Attach the tree to this checkpoint, which may be saved in the meantime." placeholder:"ID"`
	Result   string   `hidden:"" help:"Write the result to this file; who takes the file away takes the tree."`
}

// SnapResult is the result of a snap.
type SnapResult struct {
	Root       string         `json:"root"`
	Tree       string         `json:"tree"`
	Files      int            `json:"files"`
	Bytes      int64          `json:"bytes"`
	Complete   bool           `json:"complete"`
	LeftOut    []ckpt.LeftOut `json:"left_out"`
	Read       int            `json:"read"`       // files that had to be read
	Vanished   int            `json:"vanished"`   // files of the previous scan that no longer exist
	Checkpoint string         `json:"checkpoint"` // the checkpoint that names the tree; "" for none
	GitError   string         `json:"git_error,omitempty"`
	Error      string         `json:"error,omitempty"`
}

// snapTime is the time limit of a snap: after it, the tree can no longer be attached.
const snapTime = 2 * time.Minute

// Run stores the files, and makes a checkpoint or attaches them to one.
func (c *SnapCommand) Run(ctx context.Context, a *cli.App) error {
	cli.EndsSoon()
	ctx, cancel := context.WithTimeout(ctx, snapTime)
	defer cancel()
	if err := cli.Checked(cli.Given(c.Agent, ckpt.CheckAgentName), cli.Given(c.InRun, ckpt.CheckRunName),
		cli.Given(c.Attach, ckpt.CheckID)); err != nil {
		return err
	}
	p, err := placeOf(a, c.Folder)
	if err != nil {
		return err
	}
	agent, err := agentOf(a, c.Agent, p.root)
	if err != nil {
		return errors.Join(err, c.tell(&SnapResult{Root: p.root, Error: cli.MessageOf(err)}))
	}
	ref := a.Ref(agent, c.InRun, c.Epoch)
	result, finish, err := c.snap(ctx, a, p, ref)
	if err != nil {
		return errors.Join(err, c.tell(&SnapResult{Root: p.root, Error: cli.MessageOf(err)}))
	}
	finish = sync.OnceValue(finish)
	err = c.tell(result)
	if c.Attach != "" {
		_ = finish() // others must not wait for the lock while this process waits for the checkpoint
	}
	if err == nil {
		err = c.save(ctx, a, ref, result)
	}
	if err := errors.Join(err, finish()); err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(result)
	}
	result.text(a)
	return nil
}

// save adds the tree to a checkpoint, as the flags say.
func (c *SnapCommand) save(ctx context.Context, a *cli.App, ref ckpt.RunRef, result *SnapResult) error {
	switch {
	case c.Attach != "":
		if err := c.attach(ctx, a, ref, result); err != nil {
			return err
		}
	case !c.TreeOnly:
		saved, err := saveWith(ctx, a, ref, ckpt.KindRoutine, []string{result.Tree}, ckpt.Labels{"event": "files"})
		if err != nil {
			return err
		}
		result.Checkpoint = saved.ID
	}
	return nil
}

// snap stores the files. The caller must call finish: the index is written in the
// meantime.
func (c *SnapCommand) snap(ctx context.Context, a *cli.App, p *place, ref ckpt.RunRef) (r *SnapResult, finish func() error, err error) {
	s := &files.Scanner{Root: p.root}
	choice := files.Choice{
		Include: append(patterns(a.Env("CKPTSIDECAR_FILES_INCLUDE")), c.Include...),
		Exclude: append(patterns(a.Env("CKPTSIDECAR_FILES_EXCLUDE")), c.Exclude...),
	}
	if len(choice.Include)+len(choice.Exclude) > 0 || c.Result != "" { // else the same patterns as the last time apply
		s.Choice = &choice
	}
	found, before, finish, err := p.keep(ctx, a, ref.Agent, s)
	if err != nil {
		return nil, nil, err
	}
	t := &found.Tree
	r = &SnapResult{
		Root: t.Root, Tree: t.ID, Files: t.Files, Bytes: t.Bytes, Complete: t.Complete, LeftOut: t.LeftOut, Read: found.Read,
		Vanished: found.Vanished, GitError: found.GitError,
	}
	if r.LeftOut == nil {
		r.LeftOut = []ckpt.LeftOut{}
	}
	if before > 20 && found.Vanished > before/2 {
		tellVanished(ctx, a, ref, r, before)
	}
	return r, finish, nil
}

// patterns returns the lines of a setting without empty ones.
func patterns(setting string) (list []string) {
	for line := range strings.Lines(setting) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// keepTries is how often a folder is scanned if it changes while it is stored.
const keepTries = 3

// lockPatience is how long to wait for another scan of the same folder.
const lockPatience = 20 * time.Second

// keep scans a folder and stores its tree. It also returns how many files the folder had
// before. finish waits until the index is written, and must be called.
func (p *place) keep(ctx context.Context, a *cli.App, agent string, s *files.Scanner) (found *files.Found, before int,
	finish func() error, err error) {
	unlock, err := files.Lock(files.IndexPath(p.folder, p.root), lockPatience)
	if err != nil {
		return nil, 0, nil, err
	}
	found, before, written, err := p.keepLocked(ctx, a, agent, s)
	if err != nil {
		unlock()
		return nil, 0, nil, err
	}
	return found, before, func() error { defer unlock(); return written() }, nil
}

// keepLocked is keep for a caller that holds the lock. written waits for the index.
func (p *place) keepLocked(ctx context.Context, a *cli.App, agent string, s *files.Scanner) (found *files.Found,
	before int, written func() error, err error) {
	if err := p.sweep(); err != nil {
		return nil, 0, nil, err
	}
	s.Ask(ctx)
	path := files.IndexPath(p.folder, p.root)
	index := files.ReadIndex(path, p.root)
	before = len(index.Tree.Entries)
	vanished := 0
	for n := 1; ; n++ {
		if found, err = s.Scan(ctx, index); err != nil {
			return nil, 0, nil, err
		}
		vanished += found.Vanished
		if _, err := index.Put(ctx, a.Client(), agent, found); err != nil {
			return nil, 0, nil, err
		}
		index = index.Remember(found)
		if n == keepTries || !hasUnstable(found) {
			break
		}
	}
	found.Vanished = vanished
	done := make(chan error, 1)
	go func() { done <- index.Write(path) }()
	return found, before, func() error { return <-done }, nil
}

func hasUnstable(f *files.Found) bool {
	for _, l := range f.Tree.LeftOut {
		if l.Why == ckpt.LeftOutUnstable {
			return true
		}
	}
	return false
}

// saveWith saves a checkpoint with trees. Its state is the state of the run's newest
// checkpoint.
func saveWith(ctx context.Context, a *cli.App, ref ckpt.RunRef, kind ckpt.Kind, trees []string, labels ckpt.Labels) (*ckpt.Saved, error) {
	state, contentType := []byte("{}"), ckpt.ContentTypeJSON
	newest, err := a.Client().Latest(ctx, ckpt.CheckpointFilter{Agent: ref.Agent, Run: runOf(ref)}, true)
	switch {
	case err == nil:
		state, contentType = newest.State, newest.ContentType
	case ckpt.CodeOf(err) != ckpt.CodeNotFound:
		return nil, err
	}
	return a.Client().Save(ctx, &ckpt.SaveRequest{
		Agent: ref.Agent, Run: ref.Run, Epoch: ref.Epoch, Kind: kind, ContentType: contentType, State: state, Labels: labels, Trees: trees,
	})
}

// runOf returns the run that a reference means.
func runOf(ref ckpt.RunRef) string {
	if ref.Run == "" {
		return ckpt.MainRun
	}
	return ref.Run
}

// tell writes the result for a waiting hook, in one step.
func (c *SnapCommand) tell(r *SnapResult) error {
	if c.Result == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return osfile.Write(c.Result, text, 0o600)
}

// attachTime is how long after a checkpoint a tree can be attached to it.
const attachTime = time.Minute

// attach adds the tree to the checkpoint, unless the waiting hook has taken the result.
func (c *SnapCommand) attach(ctx context.Context, a *cli.App, ref ckpt.RunRef, r *SnapResult) error {
	for end := time.Now().Add(attachTime); ; time.Sleep(100 * time.Millisecond) {
		if c.Result != "" {
			if _, err := os.Lstat(c.Result); errors.Is(err, fs.ErrNotExist) {
				return nil // the hook saves with the tree
			}
		}
		_, _, err := a.Client().AttachTrees(ctx, ckpt.AttachRequest{
			Checkpoint: c.Attach, Trees: []string{r.Tree}, Run: runOf(ref), Epoch: ref.Epoch, IdempotencyKey: "attach-" + c.Attach,
		})
		if err == nil || ckpt.CodeOf(err) != ckpt.CodeNotFound || time.Now().After(end) {
			if c.Result != "" {
				_ = os.Remove(c.Result)
			}
			r.Checkpoint = c.Attach
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// ruleVanished is the rule of the finding that most files have vanished.
const ruleVanished = "files_vanished"

// tellVanished reports a finding, because a person may want the files back.
func tellVanished(ctx context.Context, a *cli.App, ref ckpt.RunRef, r *SnapResult, before int) {
	advice := "`ckptsidecar rewind` brings them back"
	if newest, err := newestWithFiles(ctx, a, ref.Agent, runOf(ref)); err == nil && newest != nil {
		advice = fmt.Sprintf("`ckptsidecar files restore %s` shows what it would bring back", newest.ID)
	}
	evidence, err := json.Marshal(map[string]any{"root": r.Root, "files_before": before, "vanished": r.Vanished})
	if err != nil {
		return
	}
	// The snap continues even if the finding cannot be reported.
	_, _, _ = a.Client().PostFinding(ctx, ref.Agent, ckpt.FindingRequest{
		Run: runOf(ref), Epoch: ref.Epoch, Rule: ruleVanished, Severity: ckpt.SeverityWarn,
		Message: fmt.Sprintf("%d of %d files vanished at once", r.Vanished, before), Advice: ckpt.Ref(advice), Evidence: evidence,
	})
}

// newestWithFiles returns a run's newest checkpoint that names files, nil for none.
func newestWithFiles(ctx context.Context, a *cli.App, agent, run string) (found *ckpt.Checkpoint, err error) {
	err = cli.EachPage("", func(before string) (string, bool, error) {
		page, err := a.Client().Checkpoints(ctx, ckpt.CheckpointFilter{Agent: agent, Run: run, Before: before})
		if err != nil {
			return "", false, err
		}
		for i := range page.Checkpoints {
			if len(page.Checkpoints[i].Trees) > 0 {
				found = &page.Checkpoints[i]
				return "", false, nil
			}
		}
		return string(page.Next), page.Next != "", nil
	})
	return found, err
}

func (r *SnapResult) text(a *cli.App) {
	if r.Checkpoint != "" {
		term.Println(a.Stdout, r.Checkpoint)
	} else {
		term.Println(a.Stdout, r.Tree)
	}
	a.Tell("%s %s of %s in %s; %d had changed", a.Err.Green("kept:"), term.Count(r.Files, "file"), term.Bytes(r.Bytes), filepath.Base(r.Root), r.Read)
	if r.GitError != "" {
		a.Tell("git could not list the files, so ckptsidecar read the folder itself: %s", r.GitError)
	}
	leftOutText(a, r.LeftOut)
	if !r.Complete {
		a.Tell("%s more may be missing than are listed here", a.Err.Yellow("incomplete:"))
	}
}

// mostShown is the maximum number of paths in a list next to the result.
const mostShown = 20

func leftOutText(a *cli.App, list []ckpt.LeftOut) {
	for i, l := range list {
		if i == mostShown {
			a.Tell("and %d more are left out", len(list)-i)
			return
		}
		a.Tell("left out: %s (%s)", l.Path, l.Why)
	}
}
