package rewind

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// Folder is the root whose files are brought back.
type Folder struct {
	Path   string
	root   *os.Root
	device uint64
	step   func(what string) // for tests: called before each change

	mu   sync.Mutex
	open map[string]*openFolder // by path
	old  []*os.Root             // replaced by others
}

// openFolder is a folder below the root that is kept open, so that its contents need not be
// reached from the root each time.
type openFolder struct {
	root *os.Root
	info fs.FileInfo
}

// OpenFolder opens a root.
func OpenFolder(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Folder{Path: path, root: root, device: deviceOf(info), step: func(string) {}, open: map[string]*openFolder{}}, nil
}

// errElsewhere means that a path is on another file system than the root. Trees do not have
// such files.
var errElsewhere = errors.New("it is on another file system")

// Close closes the folder.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.open {
		_ = o.root.Close()
	}
	for _, r := range f.old {
		_ = r.Close()
	}
	return f.root.Close()
}

// Folds reports whether the file system ignores the case of letters in names of the folder.
func (f *Folder) Folds() bool {
	return foldsIn(f.Path, f.someNames(), func(folder string) bool {
		info, err := os.Stat(folder)
		return err == nil && deviceOf(info) == f.device
	}, func(one, other string) bool {
		is, err1 := os.Lstat(one)
		too, err2 := os.Lstat(other)
		return err1 == nil && err2 == nil && os.SameFile(is, too)
	})
}

// foldsIn is Folds for a folder with these names. The first name with a letter decides. If
// there is none, it is a name on the path of the folder, as long as the folder above is here,
// which is on the same file system. same reports whether two paths are one file.
func foldsIn(path string, names []string, here func(folder string) bool, same func(one, other string) bool) bool {
	for _, name := range names {
		if other := swapCase(name); other != name {
			return same(filepath.Join(path, name), filepath.Join(path, other))
		}
	}
	for up := filepath.Dir(path); up != path && here(up); path, up = up, filepath.Dir(up) {
		name := filepath.Base(path)
		if other := swapCase(name); other != name {
			return same(path, filepath.Join(up, other))
		}
	}
	return false
}

// swapCase exchanges the case of the letters that every file system without case treats the
// same.
func swapCase(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r ^ ' '
		}
		return r
	}, name)
}

// someNames returns some names in the folder.
func (f *Folder) someNames() (names []string) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ = dir.Readdirnames(100)
	return names
}

func parent(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// way is how to reach a path: as name in dir. at is the first part of the path that must be a
// folder but is not, "" for none. missing says that a folder on the way does not exist.
type way struct {
	dir     *os.Root
	name    string
	at      string
	missing bool
	err     error
}

// blocked reports that a path cannot be reached.
func (w *way) blocked() bool { return w.at != "" || w.missing || w.err != nil }

// to finds the way to a path. It checks each folder on the way every time: it must be a
// folder, and no link. It does not open folders again that are still the same.
func (f *Folder) to(path string) way {
	w := way{dir: f.root, name: path}
	start := 0 // of w.name in path
	for end := 0; ; end++ {
		next := strings.IndexByte(path[end:], '/')
		if next < 0 {
			return w
		}
		end += next
		info, err := w.dir.Lstat(path[start:end])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			w.missing = true
			return w
		case err != nil:
			w.err = err
			return w
		case !info.IsDir():
			w.at = path[:end]
			return w
		case deviceOf(info) != f.device:
			w.err = errElsewhere
			return w
		}
		dir, err := f.enter(w.dir, path[start:end], path[:end], info)
		if err != nil {
			w.err = err
			return w
		}
		if dir != nil {
			start = end + 1
			w.dir, w.name = dir, path[start:]
		}
	}
}

// reach is like to, but nothing may be in the way. It is called right before a change,
// because an open folder may have been moved away since.
func (f *Folder) reach(path string) (dir *os.Root, name string, err error) {
	w := f.to(path)
	if w.blocked() {
		return nil, "", errors.Join(w.err, fmt.Errorf("%s has changed in the meantime", parent(path)))
	}
	return w.dir, w.name, nil
}

// remove removes the file at a path.
func (f *Folder) remove(path string) error {
	dir, name, err := f.reach(path)
	if err != nil {
		return err
	}
	return dir.Remove(name)
}

// enter returns the open folder at a path, which is name in another folder. It returns nil if
// no more folders are kept open. info describes what is there now.
func (f *Folder) enter(in *os.Root, name, path string, info fs.FileInfo) (*os.Root, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.open[path]
	if known != nil && os.SameFile(known.info, info) {
		return known.root, nil
	}
	if known == nil && len(f.open) >= mostOpen || len(f.old) >= mostOpen {
		return nil, nil
	}
	dir, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := dir.Stat(".")
	if err == nil && !os.SameFile(opened, info) {
		err = errors.New("it has changed in the meantime")
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	if known != nil {
		f.old = append(f.old, known.root) // another goroutine may be using it
	}
	f.open[path] = &openFolder{dir, opened}
	return dir, nil
}

// look returns what is at a path. It follows no link.
func (f *Folder) look(path string) Seen { return f.see(path, true) }

// glance is like look, but does not read the bytes of a file: its entry has no hash.
func (f *Folder) glance(path string) Seen { return f.see(path, false) }

func (f *Folder) see(path string, read bool) Seen {
	w := f.to(path)
	switch {
	case w.err == errElsewhere:
		return Seen{Odd: w.err.Error()}
	case w.err != nil:
		return Seen{Odd: "it cannot be looked at: " + plain(w.err)}
	case w.at != "":
		return Seen{Parent: w.at}
	case w.missing:
		return Seen{}
	}
	info, err := w.dir.Lstat(w.name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return Seen{}
	case err != nil:
		return Seen{Odd: "it cannot be looked at: " + plain(err)}
	case info.IsDir():
		return Seen{Folder: true}
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := w.dir.Readlink(w.name)
		if err != nil || len(target) > ckpt.MaxTreeTarget {
			return Seen{Odd: "its target cannot be read"}
		}
		e := &ckpt.TreeEntry{Path: path, Mode: ckpt.LinkMode, Size: int64(len(target)), Target: target}
		return Seen{Entry: e, Modified: info.ModTime()}
	case !info.Mode().IsRegular():
		return Seen{Odd: "it is not a file"}
	case info.Size() > ckpt.MaxTreeFile:
		return Seen{Odd: fmt.Sprintf("it has %d bytes now, which is too many to keep for an undo", info.Size())}
	}
	if !read {
		return Seen{Entry: &ckpt.TreeEntry{Path: path, Size: info.Size()}}
	}
	e, err := w.entry(path, info)
	if err != nil {
		return Seen{Odd: "it cannot be read: " + plain(err)}
	}
	return Seen{Entry: e, Modified: info.ModTime()}
}

// entry hashes the file at a path. The way leads to the path, and info describes the file.
func (w *way) entry(path string, info fs.FileInfo) (*ckpt.TreeEntry, error) {
	file, err := w.dir.OpenFile(w.name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, opened) {
		return nil, errors.New("it has changed in the meantime")
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(file, ckpt.MaxTreeFile+1))
	if err != nil {
		return nil, err
	}
	return &ckpt.TreeEntry{
		Path: path, Mode: fmt.Sprintf("%04o", opened.Mode().Perm()), Size: n, SHA256: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

// maxBelow limits how many paths are read of a folder that is in the way.
const maxBelow = ckpt.MaxTreeFiles

// below lists everything below a folder, except folders.
func (f *Folder) below(folder string) (list []string, err error) {
	dir, err := f.root.Open(folder)
	if err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(maxBelow)
	_ = dir.Close()
	if err != nil && err != io.EOF {
		return nil, err
	}
	for _, e := range entries {
		path := folder + "/" + e.Name()
		if !e.IsDir() || tree.IsGitFolder(e.Name()) {
			list = append(list, path)
			continue
		}
		more, err := f.below(path)
		if err != nil {
			return nil, err
		}
		if list = append(list, more...); len(list) > maxBelow {
			return nil, errors.New("too many files")
		}
	}
	return list, nil
}

// plain returns an error without the path, because the message names the path already.
func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
