package hook

import (
	"context"
	"fmt"
	"strings"
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
		r.Labels["files"] = limit(strings.Map(printable, "none: "+err.Error()), ckpt.MaxLabelValue)
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
		r.Labels["files"] = limit(strings.Map(printable, "none: "+why), ckpt.MaxLabelValue)
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

// differs reports whether a tree differs from that of the run's newest checkpoint.
func (c *call) differs(ctx context.Context, trees []string) (bool, error) {
	latest, err := c.Client.Latest(ctx, ckpt.CheckpointFilter{Agent: c.Agent, Run: c.ref.Run}, false)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return len(trees) == 0 || len(latest.Trees) != len(trees) || latest.Trees[0] != trees[0], nil
}

// promptFiles saves a checkpoint if the files differ from those of the newest
// checkpoint, so that the user can go back to the state before the prompt.
func (c *call) promptFiles(ctx context.Context, seq int64) error {
	if c.Files == nil {
		return nil
	}
	state, err := c.state(ctx)
	if err != nil {
		return err
	}
	r := c.saveRequest(ctx, state, routineWait(ctx))
	if is, err := c.differs(ctx, r.Trees); err != nil || !is {
		return err
	}
	r.Labels["prompt"] = fmt.Sprint(seq)
	_, err = c.saveFiles(ctx, r)
	return err
}

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
