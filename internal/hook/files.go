package hook

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Files keeps the files of a folder beside a hook, which may not wait for it.
type Files interface {
	// Keep begins to keep the files of a folder. The tree is for a checkpoint that
	// will have this id: it gets the tree also where nobody waits for it.
	Keep(folder string, ref ckpt.RunRef, checkpoint string) (Keeping, error)
	// Warm keeps the files for nobody yet, so that the first checkpoint that wants
	// them waits for little.
	Warm(folder string, ref ckpt.RunRef) error
	// Interrupted says that a restore of the folder was not finished.
	Interrupted(folder string) bool
}

// Keeping is a Keep under way.
type Keeping interface {
	// Tree waits so long for the tree and takes it, "" where it is not there in
	// time. why says that there will be none.
	Tree(ctx context.Context, most time.Duration) (tree, why string)
}

// routineWait is how long a checkpoint waits for its tree: two thirds of what is left of
// the hook's time.
func routineWait(ctx context.Context) time.Duration {
	if end, limited := ctx.Deadline(); limited {
		return time.Until(end) * 2 / 3
	}
	return 200 * time.Millisecond
}

// saveTime is what a hook leaves of its time for the save.
const saveTime = 80 * time.Millisecond

// keepFiles begins to keep the project's files for a checkpoint, which has the
// id from then on.
func (c *call) keepFiles() (keeping Keeping, checkpoint string, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, "", err
	}
	keeping, err = c.Files.Keep(c.Project.Folder, c.ref, id.String())
	return keeping, id.String(), err
}

// request is a checkpoint of a snapshot, with the files where they are kept. It
// waits so long for them.
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
	// The save itself must still be done in time.
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

// saveFiles saves a request. Where its tree is gone or was never there, it is
// saved without.
func (c *call) saveFiles(ctx context.Context, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	saved, err := c.Client.Save(ctx, r)
	if len(r.Trees) > 0 && ckpt.CodeOf(err) == ckpt.CodeFilesMissing {
		r.Trees = nil
		r.Labels["files"] = "none: the tree no longer existed"
		saved, err = c.Client.Save(ctx, r)
	}
	return saved, err
}

// differs says whether a tree is another than that of the run's newest checkpoint.
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

// promptFiles saves a checkpoint where the files are others than those of the
// newest one, so that one can go back before the prompt.
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

// riskyFiles saves a routine checkpoint with the files before a risky call: the
// one of the operation goes when the call succeeds, and rm may well succeed.
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

// interruptedText is said where a restore of the files was not finished.
func (c *call) interruptedText() string {
	if c.Files == nil || !c.Files.Interrupted(c.Project.Folder) {
		return ""
	}
	return "[ckptsidecar] A restore of this project's files was interrupted: some files are old, some are new. " +
		"Before you edit anything, ask the user to run " +
		"`ckptsidecar files restore --continue` to finish it or `ckptsidecar files restore --back` to take it back."
}
