package sqlite

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
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// Restored says what Restore has done.
type Restored struct {
	Kept    string   // where the previous database is now, "" if there was none
	Earlier []string // what earlier restores set aside before they were interrupted
	Undone  bool     // nothing was restored: the backup was what an interrupted restore had set aside, and it is back
}

// RestoreOptions say what Restore does.
type RestoreOptions struct {
	Path   string      // of the database
	Mode   fs.FileMode // of its file; 0600
	Now    func() time.Time
	Backup string
	Beside []string // suffixes of further files beside the database, which get its owner
	// Verify returns why a file is not a sound backup, nil if it is.
	Verify func(ctx context.Context, path string) error
	// Prove opens the restored database with a lock that is already held, and records the restore
	// in it, if it is not yet recorded. When that is on disk, and before Prove closes the database,
	// it calls finish.
	Prove func(ctx context.Context, lock *os.File, done Exchange, finish func() error) error
	// Tell is told what was kept and where, while the note about it still exists: if the process is
	// killed before that, the next restore tells it.
	Tell func(*Restored)
}

// Exchange is what a restore has exchanged.
type Exchange struct {
	Backup   string
	SetAside string // the name under which the previous database is kept
	Kept     string // the first of its files that exists, "" for none
}

// Restore replaces a database that no process has open with a backup. It copies the backup and
// verifies the copy first. It keeps the previous database under another name.
//
// A restore that is interrupted leaves a note. No database is opened until another restore has read
// the note. That restore finishes the exchange if the copy is in its place, and undoes it if not.
//
// If root restores into a folder that another user controls, the process gives up root's rights for
// that user's rights, permanently.
//
// Its errors are ErrLocked if another process has the database, *OperatorError, and the errors of
// Verify and Prove.
func Restore(ctx context.Context, opt RestoreOptions) (_ *Restored, err error) {
	setDefault(&opt.Mode, 0o600)
	r := &restoring{opt: opt, done: &Restored{}}
	defer func() { err = r.end(err) }()
	if r.opt.Backup, err = filepath.Abs(opt.Backup); err != nil {
		return nil, err
	}
	owner, err := osfile.Controller(filepath.Dir(opt.Path))
	if err != nil {
		return nil, &OperatorError{"the database's folder cannot be read", err}
	}
	if err := owner.During(func() error { return r.begin(ctx) }); err != nil || r.done.Undone || r.finished {
		return r.done, err
	}
	source, err := r.open(ctx, owner)
	if err != nil {
		return nil, err
	}
	defer source.close()
	return r.done, r.replace(ctx, source)
}

// restoring is one run of Restore.
type restoring struct {
	opt      RestoreOptions
	lock     *os.File
	owner    fileOwner
	note     note // of this restore
	done     *Restored
	finished bool // an interrupted restore of the same backup was finished: there is nothing more to do
}

// note is the one file that says that a restore is under way. While it is on disk, no daemon
// starts.
//
// One step of the exchange decides: the verified copy is renamed from its own folder to the
// database's name. An interruption before that step is undone, and after it the rest is done. The
// note has the name under which the previous database was set aside.
type note struct {
	At      string    `json:"at"`
	Backup  string    `json:"backup"`
	Size    int64     `json:"size"`
	Written time.Time `json:"written"` // when the backup was written: shows whether the same backup is asked for again
	Aside   string    `json:"aside"`
	Staged  string    `json:"staged"` // the copy, until it gets the database's name
	Earlier []string  `json:"earlier,omitempty"`
}

func notePath(path string) string { return path + ".restoring" }

// stagings is the name prefix of the folders in which copies are prepared. Each restore has one
// folder.
func stagings(path string) string {
	return filepath.Join(filepath.Dir(path), ".restore-"+filepath.Base(path)+"-")
}

// sweep removes the folders with copies that interrupted restores have left.
func sweep(path string) error {
	folder, prefix := filepath.Split(stagings(path))
	return removeBeginning(folder, prefix)
}

// readNote returns nil if no restore was interrupted.
func readNote(path string) (*note, error) {
	f, err := osfile.OpenPlain(notePath(path), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	n := new(note)
	if err == nil {
		defer f.Close()
		err = json.NewDecoder(f).Decode(n)
	}
	if err == nil && (filepath.Dir(n.Aside) != filepath.Dir(path) || !strings.HasPrefix(n.Staged, stagings(path))) {
		err = errors.New("it names a file outside the folder")
	}
	if err != nil {
		return nil, &OperatorError{fmt.Sprintf("%s records how far a restore-backup got, and cannot be read: look "+
			"at the files beside it, and remove it when every file is in place", notePath(path)), err}
	}
	return n, nil
}

// refuseHalfRestored refuses to open what an interrupted restore has left.
func (e *Engine) refuseHalfRestored() error {
	n, err := readNote(e.opt.Path)
	if n == nil || err != nil {
		return err
	}
	return &OperatorError{fmt.Sprintf("a restore-backup of %s was interrupted: run it again, with the same backup to "+
		"finish it, or with %s to go back; what was there before is %s or still in its place",
		n.Backup, n.Aside, n.Aside), nil}
}

// begin takes the lock and handles what an interrupted restore has left.
func (r *restoring) begin(ctx context.Context) error {
	var err error
	if r.lock, err = takeLock(r.opt.Path); err != nil {
		return err
	}
	r.owner = ownerToBe(r.opt.Path)
	left, err := readNote(r.opt.Path)
	if err != nil {
		return err
	}
	if left == nil {
		return sweep(r.opt.Path)
	}
	if err := r.settle(ctx, left); err != nil {
		return err
	}
	return sweep(r.opt.Path)
}

// settle finishes an interrupted restore, or undoes it.
func (r *restoring) settle(ctx context.Context, left *note) error {
	published, err := r.published(left)
	if err != nil {
		return err
	}
	r.done.Earlier = left.Earlier
	if !published {
		r.done.Undone = r.opt.Backup == left.Aside
		return r.takeBack(left)
	}
	info, err := os.Lstat(r.opt.Backup)
	same := err == nil && r.opt.Backup == left.Backup && info.Size() == left.Size && info.ModTime().Equal(left.Written)
	if same {
		r.done.Kept, r.finished = keptOf(left.Aside), true
		return r.finish(ctx, left)
	}
	// The caller asks for another backup, perhaps because this one cannot be opened. The note stays until the new one
	// replaces it.
	if kept := keptOf(left.Aside); kept != "" {
		r.done.Earlier = append(r.done.Earlier, kept)
	}
	return nil
}

// published says whether the copy has got the database's name.
func (r *restoring) published(n *note) (bool, error) {
	staged, err := os.Lstat(n.Staged)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(r.opt.Path) // after a power loss, a file system may show both names
	return err == nil && os.SameFile(staged, there), nil
}

// takeBack moves the previous database back. It removes the note before the copy is removed:
// without the copy, the note would mean that the copy is in its place.
func (r *restoring) takeBack(left *note) error {
	for _, suffix := range slices.Backward(companions) {
		from, to := left.Aside+suffix, r.opt.Path+suffix
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := os.Lstat(to); err == nil {
			return &OperatorError{fmt.Sprintf("a restore-backup was interrupted, and both %s and %s exist: "+
				"move the unwanted one away, and run restore-backup again", from, to), nil}
		}
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("the old database, kept as %s, cannot be moved back: %w", from, err)
		}
	}
	if err := osfile.SyncFolder(filepath.Dir(r.opt.Path)); err != nil {
		return err
	}
	if r.done.Undone {
		r.opt.Tell(r.done)
	}
	return r.removeNote()
}

func (r *restoring) removeNote() error {
	return errors.Join(os.Remove(notePath(r.opt.Path)), osfile.SyncFolder(filepath.Dir(r.opt.Path)))
}

// keptOf returns the first file of a database that was set aside, "" if there is none.
func keptOf(aside string) string {
	for _, suffix := range companions {
		if _, err := os.Lstat(aside + suffix); err == nil {
			return aside + suffix
		}
	}
	return ""
}

// open verifies the backup and opens it. It uses root's rights only for that, and only if the
// folder's owner cannot read the backup.
func (r *restoring) open(ctx context.Context, owner osfile.Owner) (*source, error) {
	var info fs.FileInfo
	readable := owner.During(func() (err error) {
		f, err := os.Open(r.opt.Backup)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err = f.Stat()
		return err
	}) == nil
	if readable {
		if err := owner.Become(); err != nil {
			return nil, err
		}
	} else {
		var err error
		if info, err = os.Stat(r.opt.Backup); err != nil {
			return nil, &OperatorError{"there is no backup to restore", err}
		}
	}
	r.note.Backup, r.note.Size, r.note.Written = r.opt.Backup, info.Size(), info.ModTime()
	if err := r.opt.Verify(ctx, r.opt.Backup); err != nil {
		return nil, err
	}
	source, err := openSource(ctx, r.opt.Backup)
	if err != nil {
		return nil, err
	}
	if err := owner.Become(); err != nil {
		source.close()
		return nil, err
	}
	return source, nil
}

// replace copies the backup, verifies the copy, and exchanges the database for it.
func (r *restoring) replace(ctx context.Context, source *source) error {
	if err := r.stage(ctx, source); err != nil {
		return errors.Join(err, os.RemoveAll(filepath.Dir(r.note.Staged)))
	}
	if err := r.exchange(); err != nil {
		return err
	}
	if err := r.finish(ctx, &r.note); err != nil {
		return fmt.Errorf("the restored backup cannot be opened; the old database is kept as %s: %w", r.note.Aside, err)
	}
	return nil
}

// stage makes a verified and flushed copy of the backup, in a closed folder beside the database.
func (r *restoring) stage(ctx context.Context, source *source) error {
	folder, err := os.MkdirTemp(filepath.Split(stagings(r.opt.Path) + "*")) // 0700
	if err != nil {
		return &OperatorError{"the database's folder cannot be written", err}
	}
	r.note.Staged = filepath.Join(folder, "ckpt.db")
	made, err := source.copyTo(ctx, r.note.Staged)
	if err != nil {
		return err
	}
	defer made.close()
	if err := r.opt.Verify(ctx, made.path); err != nil {
		return err
	}
	return errors.Join(made.check(made.path), made.file.Chmod(r.opt.Mode), made.file.Sync(), osfile.SyncFolder(folder))
}

// exchange moves the previous database away and puts the copy in its place.
func (r *restoring) exchange() error {
	path, folder := r.opt.Path, filepath.Dir(r.opt.Path)
	r.note.At, r.note.Earlier = ckpt.At(r.opt.Now()).String(), r.done.Earlier
	r.note.Aside = freeName(path + ".before-" + r.opt.Now().UTC().Format("20060102T150405.000Z"))
	text, err := json.Marshal(r.note)
	if err != nil {
		return err
	}
	draft := filepath.Join(filepath.Dir(r.note.Staged), "note")
	err = osfile.Write(draft, text, 0o600)
	if err == nil {
		err = errors.Join(os.Rename(draft, notePath(r.opt.Path)), osfile.SyncFolder(folder))
	}
	if err != nil {
		return &OperatorError{"the database's folder cannot be written", err}
	}
	for _, suffix := range companions {
		if err := os.Rename(path+suffix, r.note.Aside+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("the old database cannot be moved away: %w", err), r.takeBack(&r.note))
		}
	}
	r.done.Kept = keptOf(r.note.Aside)
	if err := osfile.SyncFolder(folder); err != nil {
		return errors.Join(err, r.takeBack(&r.note))
	}
	if err := os.Rename(r.note.Staged, path); err != nil {
		return errors.Join(fmt.Errorf("the backup cannot be moved into place: %w", err), r.takeBack(&r.note))
	}
	return errors.Join(osfile.SyncFolder(folder), osfile.SyncFolder(filepath.Dir(r.note.Staged)))
}

// freeName returns a name that neither a database nor one of its companions has.
func freeName(name string) string {
	for n := 1; ; n++ {
		try := name
		if n > 1 {
			try = fmt.Sprintf("%s-%d", name, n)
		}
		if keptOf(try) == "" {
			return try
		}
	}
}

// finish has the restored database opened, which proves that a daemon can open it, and removes the
// note.
func (r *restoring) finish(ctx context.Context, n *note) error {
	err := r.opt.Prove(ctx, r.lock, Exchange{n.Backup, n.Aside, keptOf(n.Aside)}, func() error {
		r.opt.Tell(r.done)
		return errors.Join(os.RemoveAll(filepath.Dir(n.Staged)), r.removeNote())
	})
	return errors.Join(err, r.owner.give(r.opt.Path, r.opt.Beside))
}

// end releases the lock. If the restore fails, the error still names what earlier restores have set aside.
func (r *restoring) end(err error) error {
	if r.lock != nil {
		err = errors.Join(err, osfile.Unlock(r.lock))
	}
	if err != nil && len(r.done.Earlier) > 0 {
		err = fmt.Errorf("%w (an interrupted restore kept %s)", err, strings.Join(r.done.Earlier, ", "))
	}
	return err
}
