package hook

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Files keeps the files of a folder in another process, because a hook must not wait for
// that.
type Files interface {
	// Keep begins to keep the files of a folder. The tree is for a checkpoint that will
	// have this id: the checkpoint gets the tree even if the hook no longer waits for it.
	Keep(folder string, ref ckpt.RunRef, checkpoint string) (Keeping, error)
	// Warm keeps the files before a checkpoint needs them, so that the first checkpoint
	// waits only a short time.
	Warm(folder string, ref ckpt.RunRef) error
	// Interrupted reports whether a restore of the folder was not finished.
	Interrupted(folder string) bool
}

// Keeping is a call of Keep that is under way.
type Keeping interface {
	// Tree waits at most the given time for the tree and takes it. tree is "" if it is not
	// there in time. why says why there will be none.
	Tree(ctx context.Context, most time.Duration) (tree, why string)
}

// routineWait returns how long a checkpoint waits for its tree: two thirds of the hook's
// remaining time.
func routineWait(ctx context.Context) time.Duration {
	if end, limited := ctx.Deadline(); limited {
		return time.Until(end) * 2 / 3
	}
	return 200 * time.Millisecond
}

// saveTime is how much of its time a hook reserves for the save.
const saveTime = 80 * time.Millisecond

// keepFiles begins to keep the project's files for a checkpoint. It returns the id that
// the checkpoint must have.
func (c *call) keepFiles() (keeping Keeping, checkpoint string, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, "", err
	}
	keeping, err = c.Files.Keep(c.Project.Folder, c.ref, id.String())
	return keeping, id.String(), err
}

// saveRequest returns the request for a checkpoint of a snapshot, with the files if they
// are kept. It waits at most wait for them.
func (c *call) saveRequest(ctx context.Context, state ckpt.JSON, wait time.Duration) *ckpt.SaveRequest {
	r := &ckpt.SaveRequest{
		Agent: c.Agent, Run: c.ref.Run, Epoch: c.ref.Epoch, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state,
		Labels: ckpt.Labels{"event": c.in.Event},
	}
	if c.Files == nil {
		return r
	}
	keeping, id, err := c.keepFiles()
	if err != nil {
		r.Labels["files"] = labelValue("none: " + err.Error())
		return r
	}
	r.ID = id
	// The save itself must still finish in time.
	if end, limited := ctx.Deadline(); limited {
		wait = max(0, min(wait, time.Until(end)-saveTime))
	}
	switch tree, why := keeping.Tree(ctx, wait); {
	case tree != "":
		r.Trees = []string{tree}
	case why != "":
		r.Labels["files"] = labelValue("none: " + why)
	}
	return r
}

// saveFiles saves a request. If the request's tree no longer exists, it saves without
// the tree.
func (c *call) saveFiles(ctx context.Context, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	saved, err := c.Client.Save(ctx, r)
	if len(r.Trees) > 0 && ckpt.CodeOf(err) == ckpt.CodeFilesMissing {
		r.Trees = nil
		r.Labels["files"] = "none: the tree no longer existed"
		saved, err = c.Client.Save(ctx, r)
	}
	return saved, err
}

// newest returns the run's newest checkpoint, nil if there is none.
func (c *call) newest(ctx context.Context) (*ckpt.Checkpoint, error) {
	latest, err := c.Client.Latest(ctx, ckpt.CheckpointFilter{Agent: c.Agent, Run: c.ref.Run}, false)
	return latest, ignore(err, ckpt.CodeNotFound)
}

// hasTrees reports whether a checkpoint has these files.
func hasTrees(c *ckpt.Checkpoint, trees []string) bool {
	return c != nil && len(trees) > 0 && slices.Equal(c.Trees, trees)
}

// differs reports whether a tree differs from that of the run's newest checkpoint.
func (c *call) differs(ctx context.Context, trees []string) (bool, error) {
	latest, err := c.newest(ctx)
	return err == nil && !hasTrees(latest, trees), err
}

// promptLabel is the label of a checkpoint that was made at a prompt. It holds the number of the prompt's event.
const promptLabel = "prompt"

// promptFiles saves a checkpoint with the files as they were when a prompt was given, so that the user can go back to
// them. It is of the kind that the policy keeps by age, so that routine checkpoints do not crowd it out. If the newest
// checkpoint is that of an earlier prompt and has the same files, that one is enough.
func (c *call) promptFiles(ctx context.Context, seq int64) error {
	if c.Files == nil {
		return nil
	}
	state, err := c.state(ctx)
	if err != nil {
		return err
	}
	r := c.saveRequest(ctx, state, routineWait(ctx))
	latest, err := c.newest(ctx)
	if err != nil || hasTrees(latest, r.Trees) && latest.Labels[promptLabel] != "" {
		return err
	}
	r.Kind, r.Labels[promptLabel] = ckpt.KindPreOperation, strconv.FormatInt(seq, 10)
	if _, err = c.saveFiles(ctx, r); err != nil {
		return err
	}
	return c.fewerPrompts(ctx)
}

// mostDeleted is how many checkpoints a prompt removes at most: an agent waits for that.
const mostDeleted = 3

// fewerPrompts removes the checkpoints of the project's oldest prompts, if there are more than the settings keep.
func (c *call) fewerPrompts(ctx context.Context) error {
	if c.Prompts <= 0 {
		return nil
	}
	filter := ckpt.CheckpointFilter{Agent: c.Agent, Kind: ckpt.KindPreOperation, Labels: ckpt.Labels{"event": c.in.Event}, Limit: min(c.Prompts+mostDeleted, ckpt.MaxLimit)}
	for kept, deleted := c.Prompts, 0; ; {
		page, err := c.Client.Checkpoints(ctx, filter)
		if err != nil {
			return err
		}
		first := min(kept, len(page.Checkpoints))
		kept -= first
		for _, old := range page.Checkpoints[first:] {
			if old.Pinned || old.Labels[promptLabel] == "" {
				continue
			}
			if _, err := c.Client.Delete(ctx, old.ID); err != nil {
				return err
			}
			if deleted++; deleted == mostDeleted {
				return nil
			}
		}
		if filter.Before = string(page.Next); filter.Before == "" {
			return nil
		}
	}
}

// waitForPrompt waits until the files as they were at the prompt are kept, before a call that may change them.
func (c *call) waitForPrompt(ctx context.Context) {
	if c.Files == nil || !shellTools[c.in.Tool] && !writers[writer(c.in.Tool)] {
		return
	}
	end, limited := ctx.Deadline()
	if !limited {
		end = time.Now().Add(routineWait(ctx))
	}
	for end = end.Add(-saveTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		latest, err := c.newest(ctx)
		if err != nil || latest == nil || latest.Labels[promptLabel] == "" || latest.Labels["files"] != "" || len(latest.Trees) > 0 ||
			time.Since(latest.CreatedAt.Time) > attachTime {
			return
		}
	}
}

// attachTime is how long after its checkpoint a tree may come.
const attachTime = time.Minute

// riskyFiles saves a routine checkpoint with the files before a risky call. The
// operation's own checkpoint is removed when the call succeeds, and a call such as rm
// can well succeed.
func (c *call) riskyFiles(ctx context.Context, state ckpt.JSON) error {
	if c.Files == nil {
		return nil
	}
	r := c.saveRequest(ctx, state, c.FilesWait)
	if is, err := c.differs(ctx, r.Trees); err != nil || !is {
		return err
	}
	_, err := c.saveFiles(ctx, r)
	return err
}

// interruptedText returns what to say if a restore of the files was not finished.
func (c *call) interruptedText() string {
	if c.Files == nil || !c.Files.Interrupted(c.Project.Folder) {
		return ""
	}
	return "[ckptsidecar] A restore of this project's files was interrupted: some files are old, some are new. " +
		"Before you edit anything, ask the user to run " +
		"`ckptsidecar files restore --continue` to finish it or `ckptsidecar files restore --back` to take it back."
}
