package rewind

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// Phase is how far a restore got.
type Phase string

// The phases. Before Moving, no file of the folder has changed.
const (
	Staging Phase = "staging"
	Moving  Phase = "moving"
	Left    Phase = "left" // the restore is over, but staged files are out of reach: their folder was moved away
)

// Journal is a restore that is under way. Its file exists from before the first change until
// after the last.
type Journal struct {
	ID         string    `json:"id"` // part of the names of staged files and of files that are moved aside
	Root       string    `json:"root"`
	Agent      string    `json:"agent"`
	Run        string    `json:"run"`
	Checkpoint string    `json:"checkpoint"` // the checkpoint whose files are brought back
	Undo       string    `json:"undo"`       // the checkpoint with the state before the restore
	Started    ckpt.Time `json:"started"`
	Phase      Phase     `json:"phase"`
	Items      []Item    `json:"items"`
	Trash      []string  `json:"trash,omitempty"`  // staged files of an earlier restore, which are removed at the end
	Lost       []string  `json:"lost,omitempty"`   // staged files that exist and are out of reach
	Former     *Journal  `json:"former,omitempty"` // the restore that this one takes back; written again if this one is abandoned
	Keep       string    `json:"keep,omitempty"`   // the path that the journal gets when the restore is done; "" if it is removed then
	TakesBack  bool      `json:"takes_back,omitempty"`

	Labels ckpt.Labels `json:"labels,omitempty"` // of the checkpoint after the restore: what the files go back to

	path string
}

// Contents returns the bytes of a file by their SHA-256.
type Contents func(ctx context.Context, sum string) ([]byte, error)

// JournalPath returns the path of the journal of a root. folder belongs to the user.
func JournalPath(folder, root string) string {
	sum := sha256.Sum256([]byte(root))
	return filepath.Join(folder, hex.EncodeToString(sum[:12])+".restore")
}

// ReadJournal reads the journal of an unfinished restore. It returns nil if there is none.
func ReadJournal(path string) (*Journal, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("the journal %s of a restore cannot be read: %w", path, err)
	}
	if j.Former != nil {
		j.Former.path = path
	}
	return j, nil
}

// NewJournal begins a restore by a plan without refused items.
func NewJournal(path string, head Journal, p *Plan) *Journal {
	j := head
	j.path, j.Phase = path, Staging
	j.Items = slices.Clone(p.Items)
	return &j
}

func (j *Journal) write() error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return osfile.Write(j.path, text, 0o600)
}

// ChangedError names the paths that have changed since the plan was made.
type ChangedError struct{ Items []Item }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%d files have changed meanwhile, the first is %s: %s", len(e.Items), e.Items[0].Path, e.Items[0].Refuse)
}

// Apply carries out a new journal. If it fails before the first file has changed, it removes
// what it has staged.
func (j *Journal) Apply(ctx context.Context, f *Folder, contents Contents) error {
	if err := j.begin(f); err != nil {
		return err
	}
	if err := j.stageAll(ctx, f, contents); err != nil {
		_, failed := j.Abandon(f)
		return errors.Join(err, failed)
	}
	return j.finish(f)
}

// Continue finishes what a process has left unfinished.
func (j *Journal) Continue(ctx context.Context, f *Folder, contents Contents) error {
	if err := j.stageAll(ctx, f, contents); err != nil {
		return err
	}
	return j.finish(f)
}

// Abandon takes back a restore that has not changed a file yet. If that restore was to take
// back another one, the journal of the other one is written again and returned. When the other
// one ends, it removes what was staged here.
func (j *Journal) Abandon(f *Folder) (former *Journal, err error) {
	if j.Phase != Staging {
		return nil, errors.New("some files have changed already: finish the restore, or take it back")
	}
	if j.Former == nil {
		j.Keep = ""
		return nil, j.clean(f)
	}
	again := *j.Former
	again.Trash = slices.Concat(again.Trash, j.staged())
	return &again, again.write()
}

// InPlaceOf notes which restore this one takes back.
func (j *Journal) InPlaceOf(former *Journal) *Journal {
	j.Former, j.TakesBack = former, true
	return j
}

// begin names the staged files, and writes the journal before the first staged file is made.
func (j *Journal) begin(f *Folder) error {
	for i := range j.Items {
		item := &j.Items[i]
		if item.Do != Write {
			continue
		}
		item.Staged = f.place(item.Path, ".ckpt-"+j.ID+"-"+strconv.Itoa(i+1))
	}
	f.step("journal")
	return j.write()
}

// place returns the path of name in the folder of a path, or in the nearest folder above it
// that exists.
func (f *Folder) place(path, name string) string {
	for at := parent(path); at != ""; at = parent(at) {
		if w := f.to(at + "/x"); !w.blocked() {
			return at + "/" + name
		}
	}
	return name
}

const (
	// stagers is how many files are staged at the same time: each waits for the daemon or the
	// disk.
	stagers = 8
	// stagedAtOnce is how many files are made before they are flushed. One flush also writes
	// what was made before it, so the flushes after it cost little.
	stagedAtOnce = 250
)

// stageAll makes all staged files that are needed and do not exist, and flushes them.
func (j *Journal) stageAll(ctx context.Context, f *Folder, contents Contents) error {
	var needed []*Item
	for i := range j.Items {
		if j.Items[i].Staged != "" && (j.Phase != Moving || !f.is(&j.Items[i], j.Items[i].After)) {
			needed = append(needed, &j.Items[i])
		}
	}
	for some := range slices.Chunk(needed, stagedAtOnce) {
		made := make([]*os.File, len(some))
		err := atOnce(ctx, len(some), func(ctx context.Context, i int) (err error) {
			if made[i], err = j.stage(ctx, f, some[i], contents); err != nil {
				err = named(some[i].Path, err)
			}
			return err
		})
		err = errors.Join(err, atOnce(context.WithoutCancel(ctx), len(some), func(_ context.Context, i int) error {
			if made[i] == nil {
				return nil
			}
			if err != nil { // an error: the staged files will be removed
				return made[i].Close()
			}
			if err := errors.Join(made[i].Sync(), made[i].Close()); err != nil {
				return named(some[i].Path, err)
			}
			return nil
		}))
		if err != nil {
			return err
		}
	}
	return j.syncFolders(f, func(i *Item) []string { return []string{i.Staged} })
}

// atOnce does n things, several at the same time, until one fails.
func atOnce(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(stagers, n) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// named puts a path before an error, and before the message that people see.
func named(path string, err error) error {
	var e *ckpt.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", path, err)
	}
	with := *e
	with.Message = path + ": " + e.Message
	return &with
}

// stage makes one staged file and checks it. It returns the file, which the caller must
// flush. If the staged file exists already and is right, stage keeps it and returns nil.
func (j *Journal) stage(ctx context.Context, f *Folder, item *Item, contents Contents) (file *os.File, err error) {
	if _, _, err := f.reach(item.Staged); err != nil {
		return nil, err
	}
	if seen := f.look(item.Staged); seen.Entry != nil {
		if item.made = same(*seen.Entry, *item.After); item.made {
			return nil, nil
		}
		f.step("drop " + item.Staged)
		if err := f.remove(item.Staged); err != nil {
			return nil, err
		}
	}
	if item.After.IsLink() {
		f.step("link " + item.Staged)
		dir, name, err := f.reach(item.Staged)
		if err != nil {
			return nil, err
		}
		err = dir.Symlink(item.After.Target, name)
		item.made = err == nil
		return nil, err
	}
	data, err := item.content(ctx, f, contents)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != item.After.SHA256 {
		return nil, ckpt.Errorf(ckpt.CodeCorrupt, "the stored content is damaged, and nothing was changed")
	}
	mode, err := strconv.ParseUint(item.After.Mode, 8, 32)
	if err != nil {
		return nil, err
	}
	f.step("create " + item.Staged)
	dir, name, err := f.reach(item.Staged)
	if err != nil {
		return nil, err
	}
	file, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	item.made = true
	f.step("fill " + item.Staged)
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(fs.FileMode(mode).Perm())); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// content returns the new content of an item.
func (i *Item) content(ctx context.Context, f *Folder, contents Contents) ([]byte, error) {
	if i.From == "" {
		return contents(ctx, i.After.SHA256)
	}
	dir, name, err := f.reach(i.From)
	if err != nil {
		return nil, err
	}
	file, err := dir.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, ckpt.MaxTreeFile))
}

// finish moves everything to its place. It checks all paths once more before it changes the
// first.
func (j *Journal) finish(f *Folder) error {
	if err := j.check(f); err != nil {
		if j.Phase == Staging {
			_, failed := j.Abandon(f)
			return errors.Join(err, failed)
		}
		return err
	}
	if j.Phase != Moving {
		j.Phase, j.Former = Moving, nil
		f.step("journal")
		if err := j.write(); err != nil {
			return err
		}
	}
	for _, item := range j.order() {
		if err := j.move(f, item); err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
	}
	for i := range j.Items {
		if j.Items[i].Do == Remove {
			f.removeEmpty(parent(j.Items[i].Path))
		}
	}
	if err := j.syncFolders(f, func(i *Item) []string { return []string{i.Path, i.Staged} }); err != nil {
		return err
	}
	return j.clean(f)
}

// check finds paths that are neither in their old nor in their new state.
func (j *Journal) check(f *Folder) error {
	var changed []Item
	for i := range j.Items {
		item := &j.Items[i]
		seen := f.look(item.Path)
		if j.untouched(f, item, &seen) || j.Phase == Moving && seen.is(item.After) {
			continue
		}
		other := *item
		other.Refuse = "it is neither the old version nor the restored one"
		changed = append(changed, other)
	}
	if len(changed) > 0 {
		return &ChangedError{changed}
	}
	return nil
}

// untouched reports whether a path is in its old state, or was moved aside.
func (j *Journal) untouched(f *Folder, item *Item, seen *Seen) bool {
	if seen.is(item.Before) {
		return true
	}
	return item.Aside && seen.is(nil) && j.isAside(f, item)
}

func (j *Journal) isAside(f *Folder, item *Item) bool {
	seen := f.look(j.asideName(item))
	return seen.Entry != nil && item.Before != nil && tree.SameContent(*seen.Entry, *item.Before)
}

func (j *Journal) asideName(item *Item) string { return item.Path + ".before-" + j.ID }

// is reports whether a path is in the state that an entry describes. A nil entry means that
// there is nothing, or a folder whose files are removed.
func (s *Seen) is(e *ckpt.TreeEntry) bool {
	switch {
	case s.Odd != "":
		return false
	case e == nil:
		return s.Entry == nil
	case s.Entry == nil:
		return false
	}
	return same(*s.Entry, *e)
}

func (f *Folder) is(item *Item, e *ckpt.TreeEntry) bool {
	seen := f.look(item.Path)
	return seen.is(e)
}

// order returns the items in the order in which they must be done: first removals that make
// way for others, then writes, then the other removals.
func (j *Journal) order() []*Item {
	written := map[string]bool{} // paths that are written
	below := map[string]bool{}   // folders below which something is written
	for i := range j.Items {
		if path := j.Items[i].Path; j.Items[i].Do == Write {
			written[path] = true
			for at := parent(path); at != "" && !below[at]; at = parent(at) {
				below[at] = true
			}
		}
	}
	blocks := func(path string) bool { // a file where a folder must be, or a file below a path that becomes a file
		for at := parent(path); at != ""; at = parent(at) {
			if written[at] {
				return true
			}
		}
		return below[path]
	}
	var first, then, last []*Item
	for i := range j.Items {
		switch item := &j.Items[i]; {
		case item.Do != Remove:
			then = append(then, item)
		case blocks(item.Path):
			first = append(first, item)
		default:
			last = append(last, item)
		}
	}
	return slices.Concat(first, then, last)
}

// move does one item, as far as it is not done yet.
func (j *Journal) move(f *Folder, item *Item) error {
	seen := f.look(item.Path)
	if seen.is(item.After) {
		if item.Staged != "" {
			f.step("drop " + item.Staged)
			item.placed = f.remove(item.Staged) == nil
		}
		return nil
	}
	if !j.untouched(f, item, &seen) {
		return errors.New("it has changed in the meantime")
	}
	if item.Aside {
		if err := j.keepAside(f, item); err != nil {
			return err
		}
	}
	switch item.Do {
	case Remove:
		f.step("remove " + item.Path)
		return patiently(func() error {
			err := f.remove(item.Path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
	case Mode:
		return f.chmod(item)
	}
	if err := f.makeFolders(parent(item.Path)); err != nil {
		return err
	}
	if seen.Folder {
		f.step("rmdir " + item.Path)
		if err := f.removeTree(item.Path); err != nil {
			return err
		}
	}
	f.step("rename " + item.Path)
	err := patiently(func() error { return f.rename(item.Staged, item.Path) })
	if err == nil {
		item.made, item.placed = false, true
	}
	return err
}

// keepAside gives what is there a second name, so that it exists at every moment.
func (j *Journal) keepAside(f *Folder, item *Item) error {
	name := j.asideName(item)
	if j.isAside(f, item) {
		return nil
	}
	if seen := f.look(name); !seen.absent() {
		return fmt.Errorf("%s exists already", name)
	}
	f.step("aside " + name)
	dir, from, err := f.reach(item.Path)
	if err != nil {
		return err
	}
	to := from + strings.TrimPrefix(name, item.Path)
	if err = dir.Link(from, to); err == nil || item.Do == Mode {
		return err
	}
	// The file system has no hard links.
	return dir.Rename(from, to)
}

func (f *Folder) chmod(item *Item) error {
	mode, err := strconv.ParseUint(item.After.Mode, 8, 32)
	if err != nil {
		return err
	}
	dir, name, err := f.reach(item.Path)
	if err != nil {
		return err
	}
	named, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	file, err := dir.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil || !os.SameFile(named, opened) {
		return errors.Join(err, errors.New("it has changed in the meantime"))
	}
	f.step("chmod " + item.Path)
	return file.Chmod(fs.FileMode(mode).Perm())
}

// makeFolders makes the folders of a path. It checks that none of them is a link.
func (f *Folder) makeFolders(folder string) error {
	if folder == "" {
		return nil
	}
	if w := f.to(folder + "/x"); !w.blocked() {
		return nil
	}
	if err := f.makeFolders(parent(folder)); err != nil {
		return err
	}
	w := f.to(folder)
	if w.blocked() {
		return errors.Join(w.err, fmt.Errorf("%s has changed in the meantime", parent(folder)))
	}
	info, err := w.dir.Lstat(w.name)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a folder", folder)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f.step("mkdir " + folder)
	dir, name, err := f.reach(folder)
	if err != nil {
		return err
	}
	return dir.Mkdir(name, 0o777)
}

// rename renames a staged file. The file is in the folder of its place, or in a folder above
// that.
func (f *Folder) rename(from, to string) error {
	a, b := f.to(from), f.to(to)
	switch {
	case a.blocked() || b.blocked():
		return errors.Join(a.err, b.err, fmt.Errorf("%s has changed in the meantime", parent(to)))
	case a.dir == b.dir:
		return a.dir.Rename(a.name, b.name)
	}
	return f.root.Rename(from, to)
}

// removeEmpty removes a folder and the folders above it, as long as they are empty.
func (f *Folder) removeEmpty(folder string) {
	for ; folder != ""; folder = parent(folder) {
		seen := f.glance(folder)
		if seen.absent() && seen.Parent == "" {
			continue
		}
		if !seen.Folder {
			return
		}
		f.step("rmdir " + folder)
		if f.remove(folder) != nil { // it is not empty
			return
		}
	}
}

// removeTree removes a folder that contains only empty folders.
func (f *Folder) removeTree(folder string) error {
	dir, err := f.root.Open(folder)
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	_ = dir.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			return fmt.Errorf("%s is in the way", folder+"/"+e.Name())
		}
		if err := f.removeTree(folder + "/" + e.Name()); err != nil {
			return err
		}
	}
	return f.remove(folder)
}

// clean removes the staged files, and last removes the journal, or gives it the path at which it is kept. As long as a staged
// file is out of reach, the journal stays and names it.
func (j *Journal) clean(f *Folder) error {
	left, err := j.sweep(f)
	if err != nil {
		return err
	}
	f.step("end")
	switch {
	case len(left) > 0 && j.Keep != "":
		kept := *j
		kept.path = j.Keep
		err = kept.write()
	case len(left) > 0:
	case j.Keep != "":
		err = os.Rename(j.path, j.Keep)
	default:
		err = os.Remove(j.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(left) > 0 {
		rest := Journal{ID: j.ID, Root: j.Root, Agent: j.Agent, Run: j.Run, Started: j.Started, Phase: Left, Lost: left, path: j.path}
		return rest.write()
	}
	// If a loss of power brings the journal back, the restore finds everything done.
	_ = osfile.SyncFolder(filepath.Dir(j.path))
	return nil
}

// Sweep removes the staged files that a restore had to leave, as far as they are in reach again, and then the journal. It
// returns those that still are not.
func (j *Journal) Sweep(f *Folder) (left []string, err error) {
	if err := j.clean(f); err != nil {
		return nil, err
	}
	again, err := ReadJournal(j.path)
	if err != nil || again == nil {
		return nil, err
	}
	return again.Lost, nil
}

// sweep removes the staged files, wherever below the root they are now, and returns those that exist and are out of reach.
func (j *Journal) sweep(f *Folder) (left []string, err error) {
	var missing []string // not at their places; some of them may never have been made
	for _, path := range j.StagedFiles() {
		w := f.to(path)
		if w.blocked() {
			missing = append(missing, path)
			continue
		}
		if _, err := w.dir.Lstat(w.name); err != nil {
			missing = append(missing, path)
			continue
		}
		f.step("drop " + path)
		if err := f.remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	made := map[string]bool{}
	for _, path := range j.Lost {
		made[path] = true
	}
	for i := range j.Items {
		made[j.Items[i].Staged] = j.Items[i].made
	}
	there, err := f.below(".") // a folder may have been moved within the root
	if err != nil {
		there = nil
	}
	at := map[string]string{}
	for _, path := range there {
		at[base(path)] = strings.TrimPrefix(path, "./")
	}
	return slices.DeleteFunc(missing, func(path string) bool {
		now := at[base(path)]
		return now == "" && !made[path] || now != "" && f.remove(now) == nil
	}), nil
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// StagedFiles returns the staged files, which are beside their places.
func (j *Journal) StagedFiles() []string { return slices.Concat(j.staged(), j.Trash, j.Lost) }

// staged returns the staged files of the journal's own items.
func (j *Journal) staged() (list []string) {
	for _, item := range j.Items {
		if item.Staged != "" && !item.placed {
			list = append(list, item.Staged)
		}
	}
	return list
}

func (j *Journal) syncFolders(f *Folder, of func(*Item) []string) error {
	folders := map[string]bool{}
	for i := range j.Items {
		for _, path := range of(&j.Items[i]) {
			if path != "" {
				folders[parent(path)] = true // "" is the root
			}
		}
	}
	for folder := range folders {
		w := way{dir: f.root}
		if folder != "" {
			if w = f.to(folder + "/x"); w.blocked() {
				continue // it no longer exists, or is a file
			}
		}
		if err := syncFolder(w.dir, parent(w.name)); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long the restore waits for a file that another process uses.
const patience = 2 * time.Second

func patiently(do func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := do()
		if err == nil || !inUse(err) || time.Now().After(end) {
			return err
		}
	}
}
