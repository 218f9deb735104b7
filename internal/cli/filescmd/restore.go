package filescmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/files"
	"github.com/ckptsidecar/ckptsidecar/internal/files/rewind"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// allowed are the flags that say what a restore may do.
type allowed struct {
	Aside     bool `xor:"changed" help:"What has changed since is kept as NAME.before-ID."`
	Overwrite bool `xor:"changed" help:"What has changed since is replaced; files undo brings it back."`
}

type restoreCmd struct {
	Checkpoint string   `arg:"" names:"checkpoint" optional:"" help:"The checkpoint: ${checkpoint}."`
	Paths      []string `arg:"" optional:"" help:"Only these files and folders, as the checkpoint names them." placeholder:"PATH"`
	Root       string   `help:"The folder. Default: the one that the checkpoint names." placeholder:"DIR"`
	Yes        bool     `short:"y" help:"Restore. Without this flag, only show the plan."`
	Remove     bool     `help:"Also remove new files that no tool of the run wrote."`
	Partial    bool     `help:"Also from a tree that is incomplete."`
	Continue   bool     `xor:"crash" help:"Finish a restore that was interrupted."`
	Back       bool     `xor:"crash" help:"Undo an interrupted restore."`
	allowed
}

// Help returns the additional text of `files restore --help`.
func (c *restoreCmd) Help() string {
	return "Only files are touched in which the checkpoint and later ones of its run do not agree, which the run has written since, or " +
		"which are gone. What is replaced or removed is kept in a pinned checkpoint first: `files undo` brings it back. " +
		"It ends with 4 where files have changed since."
}

func (c *restoreCmd) Run(ctx context.Context, a *cli.App) error {
	switch {
	case c.Continue || c.Back:
		if c.Checkpoint != "" {
			return cli.Usagef("an interrupted restore knows its checkpoint: leave the checkpoint out")
		}
		return c.afterCrash(ctx, a)
	case c.Checkpoint == "":
		return cli.Usagef("name a checkpoint: `ckptsidecar list AGENT` lists them, and `ckptsidecar rewind` lists the prompts")
	}
	id, err := a.CheckpointID(ctx, c.Checkpoint)
	if err != nil {
		return err
	}
	r, err := newRestorer(ctx, a, id, c.Root)
	if err != nil {
		return err
	}
	defer r.folder.Close()
	return r.do(ctx, c.options(), c.Yes)
}

func (c *restoreCmd) options() rewind.Options {
	o := rewind.Options{Remove: c.Remove, Partial: c.Partial, Aside: c.Aside, Overwrite: c.Overwrite}
	for _, path := range c.Paths {
		o.Paths = append(o.Paths, strings.TrimSuffix(filepath.ToSlash(filepath.Clean(path)), "/"))
	}
	return o
}

// restorer restores a folder to a checkpoint.
type restorer struct {
	a          *cli.App
	place      *place
	folder     *rewind.Folder
	checkpoint *ckpt.Checkpoint
	tree       *ckpt.Tree
	runs       []ckpt.Run  // of the agent, known when a plan is made
	labels     ckpt.Labels // what the files go back to
}

func newRestorer(ctx context.Context, a *cli.App, checkpoint, root string) (*restorer, error) {
	c, err := a.Client().Checkpoint(ctx, checkpoint, false)
	if err != nil {
		return nil, err
	}
	r := &restorer{a: a, checkpoint: c, labels: ckpt.Labels{hook.RestoredTo: "at checkpoint " + c.ID + " of " + c.CreatedAt.String()}}
	if root != "" {
		if r.place, err = placeOf(a, root); err != nil {
			return nil, err
		}
		root = r.place.root
	}
	if r.tree, err = treeOf(ctx, a, checkpoint, root); err != nil {
		return nil, err
	}
	if r.place == nil {
		if r.place, err = placeOf(a, r.tree.Root); err != nil {
			return nil, err
		}
	}
	if err := files.CheckRoot(r.place.root); err != nil {
		return nil, err
	}
	r.folder, err = rewind.OpenFolder(r.place.root)
	if errors.Is(err, fs.ErrNotExist) {
		err = ckpt.Errorf(ckpt.CodeNotFound, "the folder %s does not exist: make it (mkdir), and repeat the command", r.place.root)
	}
	return r, err
}

// Restored is what a restore has done, or would do.
type Restored struct {
	Root       string       `json:"root"`
	Checkpoint string       `json:"checkpoint"`
	Plan       *rewind.Plan `json:"plan"`
	Applied    bool         `json:"applied"`
	Undo       string       `json:"undo,omitempty"` // the checkpoint with the replaced files
}

// do shows what would be done. If apply is true, it does it.
func (r *restorer) do(ctx context.Context, o rewind.Options, apply bool) error {
	if apply {
		unlock, err := r.place.lock()
		if err != nil {
			return err
		}
		defer unlock()
	} else if err := r.place.idle(); err != nil {
		return err
	}
	plan, err := r.plan(ctx, o)
	if err != nil {
		return err
	}
	result := &Restored{Root: r.place.root, Checkpoint: r.checkpoint.ID, Plan: plan}
	if !r.a.JSON {
		r.text(plan)
	}
	err = refusal(plan)
	if err == nil && apply && len(plan.Items) > 0 {
		result.Undo, err = r.apply(ctx, plan)
		result.Applied = err == nil
	}
	if r.a.JSON {
		return errors.Join(r.a.WriteJSON(result), err)
	}
	switch {
	case err != nil:
		return err
	case len(plan.Items) == 0 && len(plan.Stays) > 0:
		r.a.Tell("nothing was changed: everything that differs stays as it is")
	case len(plan.Items) == 0:
		r.a.Tell("the files are as they were: there is nothing to do")
	case !apply:
		r.a.Tell("nothing was changed: add --yes to restore")
	default:
		r.a.Tell("%s %s; to undo: `ckptsidecar files undo%s`",
			r.a.Err.Green("restored:"), term.Count(len(plan.Items), "file"), r.place.argument(""))
	}
	return nil
}

// lock locks the folder for a restore. Only then does it ask whether one was interrupted: the
// holder of the lock may have been killed in one.
func (p *place) lock() (unlock func(), err error) {
	unlock, err = files.Lock(files.IndexPath(p.folder, p.root), lockPatience)
	if err != nil {
		return nil, err
	}
	if err := p.idle(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// idle refuses to begin while an interrupted restore must be finished.
func (p *place) idle() error {
	j, err := rewind.ReadJournal(rewind.JournalPath(p.folder, p.root))
	if err == nil && j != nil && j.Phase != rewind.Left {
		err = ckpt.Errorf(ckpt.CodeConflict, "a restore of %s was interrupted %s: "+
			"`ckptsidecar files restore --continue%s` finishes it, --back takes it back",
			p.root, term.Moment(j.Started), p.argument("--root "))
	}
	return err
}

// left removes the staged files that an earlier restore had to leave, and returns those that are still out of reach.
func (p *place) left(f *rewind.Folder) ([]string, error) {
	j, err := rewind.ReadJournal(rewind.JournalPath(p.folder, p.root))
	if err != nil || j == nil || j.Phase != rewind.Left {
		return nil, err
	}
	return j.Sweep(f)
}

// sweep is left for a caller that has not opened the folder.
func (p *place) sweep() error {
	if _, err := os.Lstat(rewind.JournalPath(p.folder, p.root)); err != nil {
		return nil
	}
	f, err := rewind.OpenFolder(p.root)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = p.left(f)
	return err
}

// refusal returns why a plan cannot be applied.
func refusal(p *rewind.Plan) error {
	if len(p.Unknown) > 0 {
		return ckpt.Errorf(ckpt.CodeNotFound, "no checkpoint has a file %q: name files as `ckptsidecar files list` does", p.Unknown[0])
	}
	if p.Partial {
		return ckpt.Errorf(ckpt.CodeConflict, "the checkpoint's list of files is incomplete: add --partial to restore the files that it has")
	}
	if refused := p.Refused(); len(refused) > 0 {
		return ckpt.Errorf(ckpt.CodeConflict,
			"nothing was changed, because %s would be overwritten: add --aside to keep such files under another name, or --overwrite",
			term.Count(len(refused), "file"))
	}
	return nil
}

// plan collects the data for a plan, and makes it.
func (r *restorer) plan(ctx context.Context, o rewind.Options) (*rewind.Plan, error) {
	entries, err := entriesOf(ctx, r.a, r.checkpoint.ID, r.tree)
	if err != nil {
		return nil, err
	}
	w := &rewind.Wish{Target: entries, Gone: r.tree.LeftOut, Whole: r.tree.Complete, Folds: r.folder.Folds()}
	if r.runs, err = r.allRuns(ctx); err != nil {
		return nil, err
	}
	newest, err := r.later(ctx, w)
	if err != nil {
		return nil, err
	}
	if err := r.written(ctx, w, newest); err != nil {
		return nil, err
	}
	now, err := r.place.look(ctx, nil)
	if err != nil {
		return nil, err
	}
	was := make(map[string]*ckpt.TreeEntry, len(entries))
	for i := range entries {
		was[entries[i].Path] = &entries[i]
	}
	w.Listed, w.Differ = map[string]bool{}, map[string]bool{}
	for _, e := range now.Tree.Entries {
		if _, fresh := w.Fresh[e.Path]; fresh {
			w.Listed[e.Path] = true
		}
		if old := was[e.Path]; old != nil && !tree.SameContent(*old, e) {
			w.Differ[e.Path] = true
		}
	}
	return rewind.Make(w, r.folder, o), nil
}

// later reads the changes in the run's later trees. It returns when the newest one was
// saved.
func (r *restorer) later(ctx context.Context, w *rewind.Wish) (newest ckpt.Time, err error) {
	newest = r.tree.CapturedAt
	own, err := r.since(ctx, r.checkpoint.Run)
	if err != nil {
		return newest, err
	}
	var others []ckpt.Checkpoint // of earlier restores after the end of the run
	for i := range r.runs {
		if run := &r.runs[i]; string(run.ParentRun) == r.checkpoint.Run && strings.HasPrefix(run.Run, restoreRun) {
			more, err := r.since(ctx, run.Run)
			if err != nil {
				return newest, err
			}
			others = append(others, more...)
		}
	}
	list := newestFirst(own, others)
	last, seen := "", map[string]bool{}
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		key := strings.Join(c.Trees, " ")
		if key == "" || key == last {
			continue
		}
		last = key
		d, err := changesOf(ctx, r.a, r.checkpoint.ID, c.ID, r.tree.Root)
		if ckpt.CodeOf(err) == ckpt.CodeNotFound {
			continue // it only has files of other folders, or was removed
		}
		if err != nil {
			return newest, err
		}
		w.Later = withNewest(w.Later, d.Changes, seen)
		newest = c.CreatedAt
	}
	return newest, nil
}

// since returns the checkpoints of a run that are newer than the one to restore, newest first.
func (r *restorer) since(ctx context.Context, run string) (list []ckpt.Checkpoint, err error) {
	err = cli.EachPage("", func(before string) (string, bool, error) {
		page, err := r.a.Client().Checkpoints(ctx, ckpt.CheckpointFilter{Agent: r.checkpoint.Agent, Run: run, Before: before, Limit: ckpt.MaxLimit})
		if err != nil {
			return "", false, err
		}
		for i := range page.Checkpoints {
			c := &page.Checkpoints[i]
			if !isLater(c, r.checkpoint) {
				return "", false, nil
			}
			list = append(list, *c)
		}
		return string(page.Next), page.Next != "", nil
	})
	return list, err
}

// isLater reports whether a checkpoint is newer than another one. In one run, the number says
// so: the clock may have been set back in between.
func isLater(c, than *ckpt.Checkpoint) bool {
	if c.Run == than.Run {
		return c.Seq > than.Seq
	}
	return !c.CreatedAt.Before(than.CreatedAt.Time)
}

// newestFirst joins the checkpoints of a run, newest first, with those of others.
func newestFirst(own, others []ckpt.Checkpoint) []ckpt.Checkpoint {
	if len(others) == 0 {
		return own
	}
	list := slices.Concat(own, others)
	slices.SortStableFunc(list, func(a, b ckpt.Checkpoint) int { return b.CreatedAt.Compare(a.CreatedAt.Time) })
	return list
}

// allRuns returns all runs of the agent.
func (r *restorer) allRuns(ctx context.Context) (runs []ckpt.Run, err error) {
	err = cli.EachPage("", func(before string) (string, bool, error) {
		page, err := r.a.Client().Runs(ctx, ckpt.RunFilter{
			Agent: r.checkpoint.Agent, Sort: ckpt.SortStarted, Before: before, Limit: ckpt.MaxLimit,
		})
		if err != nil {
			return "", false, err
		}
		runs = append(runs, page.Runs...)
		return string(page.Next), page.Next != "", nil
	})
	return runs, err
}

// withNewest adds the changes of a newer tree. Of the trees before, only the paths count then,
// and each once: a hundred checkpoints can differ in the same thousands of files.
func withNewest(later [][]ckpt.FileChange, changes []ckpt.FileChange, seen map[string]bool) [][]ckpt.FileChange {
	if n := len(later); n > 0 {
		var paths []ckpt.FileChange
		for _, c := range later[n-1] {
			if !seen[c.Path] {
				seen[c.Path] = true
				paths = append(paths, ckpt.FileChange{Path: c.Path})
			}
		}
		later[n-1] = paths
	}
	return append(later, changes)
}

// written finds the paths that tools have written since then: those of the run and of its
// sub-agents, and those of other active runs.
func (r *restorer) written(ctx context.Context, w *rewind.Wish, newest ckpt.Time) error {
	w.Wrote, w.Fresh, w.Others = map[string]bool{}, map[string]time.Time{}, map[string]string{}
	first := firstWrites{at: map[string]time.Time{}, edited: map[string]bool{}}
	w.Edited = first.edited
	this := r.checkpoint.Run
	folder, err := r.sessionFolder(ctx, this, r.tree.Root)
	if err != nil {
		return err
	}
	for i := range r.runs {
		run := &r.runs[i]
		ours := run.Run == this || string(run.ParentRun) == this
		if !ours && run.Status != ckpt.RunRunning {
			continue
		}
		in := "" // most runs have no step since then
		if run.Run == this {
			in = folder
		}
		err := r.steps(ctx, run.Run, func(s *ckpt.Step) (err error) {
			if s.StartedAt.Before(r.checkpoint.CreatedAt.Time) {
				return nil
			}
			if in == "" { // a sub-agent that has no folder of its own works in that of its session
				if in, err = r.sessionFolder(ctx, run.Run, folder); err != nil {
					return err
				}
			}
			for _, file := range writtenBy(s, r.tree.Root, in) {
				path := file.Path
				switch {
				case !ours:
					w.Others[path] = run.Run
				case s.Status != ckpt.StepSucceeded: // a call that was denied never ends
				case s.StartedAt.After(newest.Time):
					if s.EndedAt.After(w.Fresh[path]) {
						w.Fresh[path] = s.EndedAt.Time
					}
					fallthrough
				default:
					w.Wrote[path] = true
					first.note(path, s.StartedAt.Time, file.Edits)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sessionFolder returns the folder in which a run's tools worked, according to its newest
// checkpoint, or otherwise if that does not say so.
func (r *restorer) sessionFolder(ctx context.Context, run, otherwise string) (string, error) {
	newest, err := r.a.Client().Latest(ctx, ckpt.CheckpointFilter{Agent: r.checkpoint.Agent, Run: run}, true)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return otherwise, nil
	}
	if err != nil {
		return "", err
	}
	var s hook.Snapshot
	if json.Unmarshal(newest.State, &s) != nil || !filepath.IsAbs(s.Folder) {
		return otherwise, nil
	}
	if real, err := filepath.EvalSymlinks(s.Folder); err == nil { // the paths of roots have no links
		return real, nil
	}
	return s.Folder, nil
}

func (r *restorer) steps(ctx context.Context, run string, each func(*ckpt.Step) error) error {
	return cli.EachPage("", func(before string) (string, bool, error) {
		page, err := r.a.Client().Steps(ctx, ckpt.RunRef{Agent: r.checkpoint.Agent, Run: run}, ckpt.ListFilter{Before: before, Limit: ckpt.MaxLimit})
		if err != nil {
			return "", false, err
		}
		for i := range page.Steps {
			if err := each(&page.Steps[i]); err != nil {
				return "", false, err
			}
		}
		return string(page.Next), page.Next != "", nil
	})
}

// apply saves the current files, and carries out the plan. It returns the checkpoint with
// the files as they were before.
func (r *restorer) apply(ctx context.Context, plan *rewind.Plan) (undo string, err error) {
	unpin, err := r.pin(ctx)
	if err != nil {
		return "", err
	}
	defer unpin()
	head := rewind.Journal{
		Root: r.place.root, Agent: r.checkpoint.Agent, Run: r.checkpoint.Run, Checkpoint: r.checkpoint.ID, Started: ckpt.At(time.Now()),
		Labels: r.labels,
	}
	return r.place.apply(ctx, r.a, r.folder, head, plan)
}

// pin keeps the checkpoint that is restored until unpin is called. Storing the files for the
// undo can otherwise make it lose its own, if the agent's files take all the space they may.
func (r *restorer) pin(ctx context.Context) (unpin func(), err error) {
	if r.checkpoint.Pinned {
		return func() {}, nil
	}
	set := func(ctx context.Context, pinned bool) error {
		_, err := r.a.Client().Patch(ctx, r.checkpoint.ID, ckpt.CheckpointPatch{Pinned: &pinned})
		return err
	}
	return func() { _ = set(context.WithoutCancel(ctx), false) }, set(ctx, true)
}

func (p *place) apply(ctx context.Context, a *cli.App, f *rewind.Folder, head rewind.Journal, plan *rewind.Plan) (undo string, err error) {
	if head.ID, err = shortID(); err != nil {
		return "", err
	}
	ref, end, err := keptIn(ctx, a, head.Agent, head.Run)
	if err != nil {
		return "", err
	}
	defer end()
	if head.Undo, err = p.keepForUndo(ctx, a, ref, &head, plan); err != nil {
		return "", err
	}
	if head.Lost, err = p.left(f); err != nil {
		return "", err
	}
	head.Keep = p.undoPath() // not before: if this restore fails, undo still takes back the one before
	j := rewind.NewJournal(rewind.JournalPath(p.folder, p.root), head, plan)
	contents, done := contentsOf(a, head.Agent)
	defer done()
	if err := j.Apply(ctx, f, contents); err != nil {
		return head.Undo, p.failed(ctx, a, f, err)
	}
	noteRestored(ctx, a, j)
	return head.Undo, p.keepRestored(ctx, a, ref, j)
}

// restoreRun is the beginning of the names of runs that restores have made.
const restoreRun = "restore-"

// keptIn returns the run that gets the checkpoints of a restore. That is the run itself or, if
// it has ended and takes no more, a new run below it, which end ends. People also go back when
// a session is over.
func keptIn(ctx context.Context, a *cli.App, agent, run string) (ref ckpt.RunRef, end func(), err error) {
	ref, end = ckpt.RunRef{Agent: agent, Run: run}, func() {}
	is, err := a.Client().Run(ctx, ref)
	if err != nil || is.EndedAt.IsZero() {
		return ref, end, err
	}
	id, err := shortID()
	if err != nil {
		return ref, end, err
	}
	ref.Run = restoreRun + id
	_, _, err = a.Client().StartRun(ctx, ckpt.RunRequest{Agent: agent, Run: ref.Run, ParentRun: ckpt.Ref(run), PID: os.Getpid()})
	return ref, func() {
		// If that fails, the run counts as interrupted when this process is gone.
		_, _, _ = a.Client().EndRun(context.WithoutCancel(ctx), ref, ckpt.EndRequest{Status: ckpt.RunCompleted})
	}, err
}

// keepRestored saves a checkpoint with the files after a restore. They are now the run's
// newest files, and do not count as an edit by another program.
func (p *place) keepRestored(ctx context.Context, a *cli.App, ref ckpt.RunRef, j *rewind.Journal) error {
	found, err := p.keepNow(ctx, a, j.Agent, &files.Scanner{Root: p.root})
	if err == nil {
		paths := make([]string, len(j.Items))
		for i := range j.Items {
			paths[i] = j.Items[i].Path
		}
		labels := hook.RestoredLabels(j.Labels, j.Run, paths)
		labels["restore"] = j.ID
		// A routine checkpoint could remove the one that was restored, which is often the oldest.
		_, err = saveWith(ctx, a, ref, ckpt.KindRecovery, []string{found.Tree.ID}, labels)
	}
	if err != nil {
		return fmt.Errorf("the files were restored, but could not be saved in a checkpoint: %w", err)
	}
	return nil
}

// keepNow is keepLocked, and also waits for the index.
func (p *place) keepNow(ctx context.Context, a *cli.App, agent string, s *files.Scanner) (*files.Found, error) {
	found, _, written, err := p.keepLocked(ctx, a, agent, s)
	if err != nil {
		return nil, err
	}
	return found, written()
}

// failed undoes a restore that failed in the middle.
func (p *place) failed(ctx context.Context, a *cli.App, f *rewind.Folder, why error) error {
	j, err := rewind.ReadJournal(rewind.JournalPath(p.folder, p.root))
	var changed *rewind.ChangedError
	if err == nil && (j == nil || j.Phase == rewind.Left) && errors.As(why, &changed) {
		tellChanged(a, changed)
		return ckpt.Errorf(ckpt.CodeConflict, "nothing was changed, because %s changed in the meantime", term.Count(len(changed.Items), "file"))
	}
	if err != nil || j == nil || j.Phase == rewind.Left { // nothing has changed
		return errors.Join(why, err)
	}
	if err := p.back(ctx, a, f, j, allowed{}); err != nil {
		return fmt.Errorf("%w; undoing the restore failed too: %w; try again with `ckptsidecar files restore --continue%s` or --back",
			why, err, p.argument("--root "))
	}
	return fmt.Errorf("%w; everything is as it was before", why)
}

// keepForUndo saves a pinned checkpoint whose tree has every byte that the plan replaces or
// removes. If that fails, it returns an error.
func (p *place) keepForUndo(ctx context.Context, a *cli.App, ref ckpt.RunRef, head *rewind.Journal, plan *rewind.Plan) (string, error) {
	s := &files.Scanner{Root: p.root}
	for _, item := range plan.Items {
		if item.Before != nil {
			s.Also = append(s.Also, item.Path)
		}
	}
	found, err := p.keepNow(ctx, a, head.Agent, s)
	if err != nil {
		return "", fmt.Errorf("the present files could not be saved first, so nothing was changed: %w", err)
	}
	kept := make(map[string]ckpt.TreeEntry, len(found.Tree.Entries))
	for _, e := range found.Tree.Entries {
		kept[e.Path] = e
	}
	for _, item := range plan.Items {
		e, is := kept[item.Path]
		if item.Before != nil && !item.Aside && (!is || !tree.SameContent(e, *item.Before)) {
			return "", ckpt.Errorf(ckpt.CodeConflict,
				"%s cannot be saved for an undo (%s), so nothing was changed: add --aside to keep it in its folder",
				item.Path, whyLeftOut(found, item.Path))
		}
	}
	saved, err := saveWith(ctx, a, ref, ckpt.KindRecovery, []string{found.Tree.ID}, ckpt.Labels{"event": "files_undo", "restore": head.ID})
	if err != nil {
		return "", fmt.Errorf("the present files could not be saved first, so nothing was changed: %w", err)
	}
	pinned := true
	if _, err := a.Client().Patch(ctx, saved.ID, ckpt.CheckpointPatch{Pinned: &pinned}); err != nil {
		return "", err
	}
	return saved.ID, nil
}

func whyLeftOut(f *files.Found, path string) string {
	for _, l := range f.Tree.LeftOut {
		if l.Path == path {
			return string(l.Why)
		}
	}
	return "it changes"
}

// readers is how many contents are read from the daemon at the same time, because one
// connection returns them one after another.
const readers = 4

// contentsOf returns a function that reads contents from the daemon, until done is called.
func contentsOf(a *cli.App, agent string) (contents rewind.Contents, done func()) {
	type reader interface {
		Content(ctx context.Context, agent, sum string) ([]byte, error)
		Close()
	}
	idle := make(chan reader, readers)
	all := make([]reader, readers)
	for i := range all {
		all[i] = a.Another()
		idle <- all[i]
	}
	contents = func(ctx context.Context, sum string) ([]byte, error) {
		r := <-idle
		defer func() { idle <- r }()
		return r.Content(ctx, agent, sum)
	}
	return contents, func() {
		for _, r := range all {
			r.Close()
		}
	}
}

// noteRestored adds a note about the restore to the run's journal.
func noteRestored(ctx context.Context, a *cli.App, j *rewind.Journal) {
	payload, err := json.Marshal(map[string]any{"checkpoint": j.Checkpoint, "undo": j.Undo, "root": j.Root, "files": len(j.Items)})
	if err == nil {
		_, _, _ = a.Client().Append(ctx, ckpt.RunRef{Agent: j.Agent, Run: j.Run}, []ckpt.NewEvent{{Type: "files_restored", Payload: payload}}, "")
	}
}

// afterCrash finishes an interrupted restore, or undoes it.
func (c *restoreCmd) afterCrash(ctx context.Context, a *cli.App) error {
	p, err := placeOf(a, c.Root)
	if err != nil {
		return err
	}
	unlock, err := files.Lock(files.IndexPath(p.folder, p.root), lockPatience)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := rewind.ReadJournal(rewind.JournalPath(p.folder, p.root))
	if err != nil {
		return err
	}
	if j == nil {
		return ckpt.Errorf(ckpt.CodeNotFound, "no restore of %s was interrupted", p.root)
	}
	f, err := rewind.OpenFolder(p.root)
	if err != nil {
		return err
	}
	defer f.Close()
	if j.Phase == rewind.Left {
		left, err := p.left(f)
		switch {
		case err != nil:
			return err
		case len(left) == 0:
			a.Tell("the restore is over, and its staged files are removed")
			return nil
		}
		a.Tell("the restore is over, but %s cannot be found, the first is %s: the folder was moved away; "+
			"delete files with names like %s where you find them", term.Count(len(left), "staged file"), left[0], filepath.Base(left[0]))
		return os.Remove(rewind.JournalPath(p.folder, p.root)) // the person knows now
	}
	if c.Back {
		err = p.back(ctx, a, f, j, c.allowed)
	} else {
		contents, done := contentsOf(a, j.Agent)
		defer done()
		err = j.Continue(ctx, f, contents)
	}
	if err != nil {
		return p.changedText(a, err)
	}
	if c.Back || j.TakesBack {
		a.Tell("%s the files are as they were before the restore", a.Err.Green("back:"))
		return nil
	}
	noteRestored(ctx, a, j)
	a.Tell("%s %s; to undo: `ckptsidecar files undo%s`", a.Err.Green("restored:"), term.Count(len(j.Items), "file"), p.argument(""))
	ref, end, err := keptIn(ctx, a, j.Agent, j.Run)
	if err != nil {
		return err
	}
	defer end()
	return p.keepRestored(ctx, a, ref, j)
}

// changedText lists the files that have changed in the meantime, and says what to do about them.
func (p *place) changedText(a *cli.App, err error) error {
	var changed *rewind.ChangedError
	if !errors.As(err, &changed) {
		return err
	}
	tellChanged(a, changed)
	count := term.Count(len(changed.Items), "file")
	if j, err := rewind.ReadJournal(rewind.JournalPath(p.folder, p.root)); err == nil && (j == nil || j.Phase == rewind.Left) {
		return ckpt.Errorf(ckpt.CodeConflict, "nothing was changed, because %s changed since: begin the restore again", count)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "%s changed since: undo the rest with `ckptsidecar files restore --back%s`", count, p.argument("--root "))
}

// cannotGoBack lists the files whose restore is not undone, and says what to do about them.
func (p *place) cannotGoBack(a *cli.App, refused []rewind.Item, may allowed) error {
	tellChanged(a, &rewind.ChangedError{Items: refused})
	count := term.Count(len(refused), "file")
	if may.Aside || may.Overwrite {
		return ckpt.Errorf(ckpt.CodeConflict, "nothing was changed, because %s cannot be replaced: move such files away, and repeat the command", count)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "nothing was changed, because %s changed since the restore: "+
		"`ckptsidecar files restore --back%s` with --aside keeps such files under another name, with --overwrite it replaces them",
		count, p.argument("--root "))
}

func tellChanged(a *cli.App, e *rewind.ChangedError) {
	for _, item := range e.Items {
		a.Tell("%s: %s", item.Path, item.Refuse)
	}
}

// back undoes an interrupted restore.
func (p *place) back(ctx context.Context, a *cli.App, f *rewind.Folder, j *rewind.Journal, may allowed) error {
	if j.Phase == rewind.Staging {
		var err error
		if j, err = j.Abandon(f); j == nil || err != nil {
			return err
		}
	}
	plan, err := p.backPlan(ctx, a, f, j, may)
	if err != nil {
		return err
	}
	if refused := plan.Refused(); len(refused) > 0 {
		return p.cannotGoBack(a, refused, may)
	}
	id, err := shortID()
	if err != nil {
		return err
	}
	head := *j
	head.ID, head.Trash, head.Started, head.Keep = id, j.StagedFiles(), ckpt.At(time.Now()), ""
	contents, done := contentsOf(a, j.Agent)
	defer done()
	return rewind.NewJournal(rewind.JournalPath(p.folder, p.root), head, plan).InPlaceOf(j).Apply(ctx, f, contents)
}

func (p *place) backPlan(ctx context.Context, a *cli.App, f *rewind.Folder, j *rewind.Journal, may allowed) (*rewind.Plan, error) {
	t, err := treeOf(ctx, a, j.Undo, p.root)
	if err != nil {
		return nil, err
	}
	entries, err := entriesOf(ctx, a, j.Undo, t)
	if err != nil {
		return nil, err
	}
	return rewind.Back(j, entries, f, rewind.Options{Aside: may.Aside, Overwrite: may.Overwrite}), nil
}

// undoPath returns the path of the journal of the folder's last restore, for its undo.
func (p *place) undoPath() string {
	return strings.TrimSuffix(rewind.JournalPath(p.folder, p.root), ".restore") + ".undo"
}

type undoCmd struct {
	Folder string `arg:"" optional:"" help:"The folder. Default: the repository of the present one, else that." placeholder:"DIR"`
	DryRun bool   `help:"Only show what would be done."`
	allowed
}

// Help returns the additional text of `files undo --help`.
func (c *undoCmd) Help() string { return "A second undo takes the first one back." }

func (c *undoCmd) Run(ctx context.Context, a *cli.App) error {
	p, err := placeOf(a, c.Folder)
	if err != nil {
		return err
	}
	return p.undo(ctx, a, c.allowed, c.DryRun)
}

func (p *place) undo(ctx context.Context, a *cli.App, may allowed, dry bool) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	j, err := rewind.ReadJournal(p.undoPath())
	if err == nil && j == nil {
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		return ckpt.Errorf(ckpt.CodeNotFound, "no restore of %s to undo", p.root)
	}
	if err != nil {
		return err
	}
	f, err := rewind.OpenFolder(p.root)
	if err != nil {
		return err
	}
	defer f.Close()
	plan, err := p.backPlan(ctx, a, f, j, may)
	if err != nil {
		return err
	}
	result := &Restored{Root: p.root, Checkpoint: j.Undo, Plan: plan}
	if !a.JSON {
		planText(a, plan)
	}
	err = refusal(plan)
	if err == nil && !dry && len(plan.Items) > 0 {
		head := rewind.Journal{
			Root: p.root, Agent: j.Agent, Run: j.Run, Checkpoint: j.Undo, Started: ckpt.At(time.Now()),
			Labels: ckpt.Labels{hook.RestoredTo: "before the restore of " + j.Started.String() + ", which is taken back"},
		}
		result.Undo, err = p.apply(ctx, a, f, head, plan)
		result.Applied = err == nil
	}
	if a.JSON {
		return errors.Join(a.WriteJSON(result), err)
	}
	switch {
	case err != nil:
		return err
	case len(plan.Items) == 0:
		a.Tell("the files are as they were before the restore: there is nothing to do")
	case !dry:
		a.Tell("%s %s", a.Err.Green("taken back:"), term.Count(len(plan.Items), "file"))
	}
	return nil
}

// text shows a plan, and what a person should know in addition.
func (r *restorer) text(p *rewind.Plan) {
	planText(r.a, p)
	if head := files.Head(r.place.root); head != r.tree.GitHead {
		r.a.Tell("git has commit %s checked out, and had %s at the checkpoint; ckptsidecar does not change that",
			shortCommit(head), shortCommit(r.tree.GitHead))
	}
	if r.place.root != r.tree.Root {
		r.a.Tell("the files were kept below %s", r.tree.Root)
	}
}

func shortCommit(id string) string {
	if id == "" {
		return "none"
	}
	return id[:min(len(id), 12)]
}

func planText(a *cli.App, p *rewind.Plan) {
	for _, item := range p.Items {
		line := ""
		switch {
		case item.Do == rewind.Remove:
			line = a.Out.Red("- " + item.Path)
		case item.Before == nil:
			line = a.Out.Green("+ " + item.Path)
		default:
			line = a.Out.Yellow("~ " + item.Path)
		}
		if item.Aside {
			line += "  (what is there is kept beside it)"
		}
		if item.Refuse != "" {
			line = a.Out.Bold("! ") + item.Path + ": " + item.Refuse
		}
		term.Println(a.Stdout, line)
	}
	for i, s := range p.Stays {
		if i == mostShown {
			a.Tell("and %d more stay", len(p.Stays)-i)
			break
		}
		a.Tell("stays: %s (%s)", s.Path, s.Why)
	}
}

// Interrupted reports whether an interrupted restore of a folder must be finished.
func Interrupted(env func(string) string, root string) bool {
	folder, err := StateFolder(env)
	if err != nil {
		return false
	}
	_, err = os.Lstat(rewind.JournalPath(folder, root))
	return err == nil
}
