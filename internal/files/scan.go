package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// settled is how much older than a scan a file's times must be, so that the next change of
// the file gets different times.
const settled = 2 * time.Second

// tries is how often a file is read if it changes while it is read.
const tries = 3

// Scanner finds and reads the files of a root.
type Scanner struct {
	Root   string           // cleaned and absolute
	Choice *Choice          // nil for the choice of the previous scan
	Limits tree.Limits      // the zero value means the default limits
	Also   []string         // paths to look at although no listing has them
	Now    func() time.Time // nil for the clock

	// AfterRead is for tests. It is called after a file was read and before it is checked
	// again.
	AfterRead func(path string)

	asked *askedGit
}

// Ask lets git list the root while the caller does something else. The next scan uses that
// listing.
func (s *Scanner) Ask(ctx context.Context) { s.asked = askGit(ctx, s.Root) }

// Found is the result of a scan.
type Found struct {
	Tree     ckpt.Tree
	Read     int    // how many files were read
	Vanished int    // how many files of the previous tree no longer exist
	GitError string // why git did not list the root; "" if it did
	choice   Choice
	records  map[string]record
	data     map[string][]byte // the contents of files that were read, by their hashes
	held     int64             // the number of bytes in data
}

// mostHeld is the most bytes of file contents that a scan keeps, so that they need not be
// read again to be stored.
const mostHeld = 64 << 20

// Scan makes a tree of the files below the root as they are now. before is what is known
// about them; Scan does not change it.
func (s *Scanner) Scan(ctx context.Context, before *Index) (*Found, error) {
	if err := CheckRoot(s.Root); err != nil {
		return nil, err
	}
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	most := s.Limits
	if most == (tree.Limits{}) {
		most = tree.Defaults()
	}
	choice := before.Choice
	if s.Choice != nil {
		choice = *s.Choice
	}
	w := &scan{Scanner: s, choice: choice, before: before, started: now(), most: most, folders: map[string]folderState{},
		looked: map[string]bool{}, reading: make(chan *reading, 64)}
	w.found.choice = choice
	w.found.Tree = ckpt.Tree{Root: s.Root, CapturedAt: ckpt.At(w.started), Complete: true}
	w.found.records, w.found.data = map[string]record{}, map[string][]byte{}
	if err := w.do(ctx); err != nil {
		return nil, err
	}
	tree.Sort(&w.found.Tree)
	w.found.Tree.LeftOut = slices.CompactFunc(w.found.Tree.LeftOut, func(a, b ckpt.LeftOut) bool { return a.Path == b.Path })
	nameFewer(&w.found.Tree)
	w.found.Tree.ID = tree.ID(&w.found.Tree)
	return &w.found, nil
}

// mostLeftOut is the most bytes of the paths that a tree names as left out.
const mostLeftOut = 1 << 20

// nameFewer limits how many paths are named as left out. A tree that does not name all of
// them is incomplete.
func nameFewer(t *ckpt.Tree) {
	size := 0
	for i, l := range t.LeftOut {
		if size += len(l.Path); i == ckpt.MaxTreeLeftOut || size > mostLeftOut {
			t.LeftOut, t.Complete = t.LeftOut[:i], false
			return
		}
	}
}

// Remember returns the index after a scan. It keeps which trees the agents' stores have.
func (x *Index) Remember(f *Found) *Index {
	return &Index{Root: x.Root, Choice: f.choice, Stored: x.Stored, Tree: f.Tree, records: f.records}
}

// CheckRoot refuses folders that hold more than a project: the root of the system, a home
// folder, and every folder above one.
func CheckRoot(root string) error {
	if !filepath.IsAbs(root) || filepath.Clean(root) != root {
		return ckpt.Errorf(ckpt.CodeInvalid, "%q is not an absolute path of a folder without . and ..", root)
	}
	if !utf8.ValidString(root) || len(root) > ckpt.MaxTreePath {
		return ckpt.Errorf(ckpt.CodeInvalid, "the path %q of the folder cannot be kept", root)
	}
	if filepath.Dir(root) == root {
		return ckpt.Errorf(ckpt.CodeInvalid, "the files of %s are not kept: it is the root of a file system", root)
	}
	homes := []string{"/root", "/home", "/Users"}
	if home, err := os.UserHomeDir(); err == nil {
		homes = append(homes, home)
	}
	for _, home := range homes {
		home = filepath.Clean(home)
		if home == root || strings.HasPrefix(home, root+string(filepath.Separator)) {
			return ckpt.Errorf(ckpt.CodeInvalid, "the files of %s are not kept: "+
				"it is a home folder, or contains one; name the folder of a project", root)
		}
	}
	return nil
}

// scan is a scan that is under way.
type scan struct {
	*Scanner
	choice  Choice
	before  *Index
	started time.Time
	most    tree.Limits
	device  uint64
	folders map[string]folderState
	looked  map[string]bool // the paths that were visited
	bytes   int64
	files   int             // how many are in the tree or are being read
	inner   []string        // submodules that the scan has found
	modules map[string]bool // the submodules that .gitmodules names
	ahead   *ahead
	reading chan *reading
	found   Found
	mu      sync.Mutex // guards what the readers write: found, bytes
}

// folderState is how the scan treats a folder.
type folderState byte

const (
	folderUnknown folderState = iota
	folderPlain
	folderGone      // missing, or behind a link
	folderElsewhere // on another file system
	folderUnreadable
)

// reading is a file that must be read.
type reading struct {
	path string
	info fs.FileInfo
	was  record
}

func (w *scan) do(ctx context.Context) error {
	info, err := os.Lstat(w.Root)
	if err != nil || !info.IsDir() {
		return w.rootGone(err)
	}
	w.device, _, _ = identity(info)
	w.folders[""] = folderPlain
	root, err := os.OpenRoot(w.Root)
	if err != nil {
		return w.rootGone(err)
	}
	defer root.Close()
	w.found.Tree.GitHead = gitHead(w.Root)
	w.ahead = lookAhead(w.Root, w.before.Tree.Entries)
	listing := list(ctx, w.Root, w.choice, w.asked)
	w.asked = nil
	w.ahead.wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the files of %s were not listed in time: %w", w.Root, err)
	}
	w.found.GitError = listing.GitError
	for _, l := range listing.LeftOut {
		w.leaveOut(l.Path, l.Why)
	}
	if listing.Failed != nil || listing.Slow && !w.knowsTracked() {
		w.found.Tree.Complete = false
	}
	var readers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4) {
		readers.Go(func() {
			for r := range w.reading {
				w.read(ctx, root, r)
			}
		})
	}
	w.look(ctx, w.withKnown(listing))
	w.submodules(ctx)
	w.look(ctx, w.also())
	close(w.reading)
	readers.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the files of %s were not read in time: %w", w.Root, err)
	}
	w.countVanished()
	return nil
}

// rootGone makes the tree for a root that does not exist: it keeps what was known, and
// marks the tree as incomplete.
func (w *scan) rootGone(err error) error {
	if err == nil {
		err = errors.New("not a folder")
	}
	if w.before.Tree.ID == "" {
		return ckpt.Errorf(ckpt.CodeNotFound, "the folder %s cannot be read: %v", w.Root, err)
	}
	w.found.Tree.Complete = false
	w.found.Tree.GitHead = w.before.Tree.GitHead
	w.found.Tree.Entries = slices.Clone(w.before.Tree.Entries)
	w.found.Tree.LeftOut = slices.Clone(w.before.Tree.LeftOut)
	w.found.records = w.before.records
	return nil
}

// withKnown adds what git has listed before to the result of a walk, which knows less. A
// failed listing must not make files vanish. If the listing is about some folders, only files
// below these are added.
func (w *scan) withKnown(l *Listing, folders ...string) []Listed {
	if !l.Walked && l.Failed == nil {
		return l.Paths
	}
	listed := make(map[string]bool, len(l.Paths))
	for i, p := range l.Paths {
		listed[p.Path] = true
		l.Paths[i].Tracked = p.Tracked || w.before.records[p.Path].tracked
	}
	exclude := parseRules("", []byte(strings.Join(w.choice.Exclude, "\n")))
	below := func(path string) bool {
		return folders == nil || slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(path, f+"/") })
	}
	for path, r := range w.before.records {
		if !listed[path] && below(path) && !coveredBy(exclude, path) {
			l.Paths = append(l.Paths, Listed{path, r.tracked})
		}
	}
	slices.SortFunc(l.Paths, func(a, b Listed) int { return strings.Compare(a.Path, b.Path) })
	return l.Paths
}

// knowsTracked reports whether git has listed the root before. If not, a walk misses what git
// tracks in folders that a walk skips, and the next tree will have it.
func (w *scan) knowsTracked() bool {
	for _, r := range w.before.records {
		if r.tracked {
			return true
		}
	}
	return false
}

// also returns the paths that the caller has named. They come last, because the listings
// know which files git tracks.
func (w *scan) also() (list []Listed) {
	for _, path := range w.Also {
		list = append(list, Listed{path, w.before.records[path].tracked})
	}
	return list
}

// staged matches the names of files that a restore has staged.
var staged = regexp.MustCompile(`^\.ckpt-[0-9a-f]{8}-[0-9]+$`)

// submodules visits the files in the submodules that were found, and in the submodules of
// these.
func (w *scan) submodules(ctx context.Context) {
	for depth := 0; len(w.inner) > 0 && ctx.Err() == nil; depth++ {
		folders := w.inner
		listing := Submodules(ctx, w.Root, w.choice, folders, depth)
		w.inner = nil
		for _, l := range listing.LeftOut {
			w.leaveOut(l.Path, l.Why)
		}
		if listing.Failed != nil || listing.Slow && !w.knowsTracked() {
			w.incomplete()
		}
		w.look(ctx, w.withKnown(listing, folders...))
	}
}

// look visits all paths that it has not visited yet, and queues the files that must be
// read.
func (w *scan) look(ctx context.Context, list []Listed) {
	for _, l := range list {
		if ctx.Err() != nil {
			return
		}
		if w.looked[l.Path] {
			continue
		}
		w.looked[l.Path] = true
		if staged.MatchString(path.Base(l.Path)) {
			continue
		}
		if tree.CheckPath(l.Path) != nil {
			w.leaveOut(l.Path, ckpt.LeftOutPath)
			continue
		}
		switch w.folder(parent(l.Path)) {
		case folderGone:
			continue
		case folderElsewhere:
			w.leaveOutFolder(parent(l.Path), ckpt.LeftOutElsewhere)
			continue
		case folderUnreadable:
			w.leaveOutFolder(parent(l.Path), ckpt.LeftOutUnreadable)
			continue
		}
		info, err := w.ahead.lstat(l.Path)
		switch {
		case isGone(err):
			continue
		case err != nil:
			w.leaveOut(l.Path, ckpt.LeftOutUnreadable)
			continue
		case info.IsDir():
			// It is a submodule, or a folder that has replaced a file.
			if l.Tracked && w.isSubmodule(l.Path) {
				w.inner = append(w.inner, l.Path)
			}
			continue
		case !l.Tracked && SecretName(path.Base(l.Path)):
			w.leaveOut(l.Path, ckpt.LeftOutSecretName)
			continue
		case w.files >= w.most.Files:
			w.leaveOut(l.Path, ckpt.LeftOutTooMany)
			w.incomplete()
			continue
		}
		if w.visit(l, info) {
			w.files++
		}
	}
}

// isSubmodule reports whether a folder that git tracks is a submodule with files, which git
// does not list. A submodule that was removed and restored has no .git.
func (w *scan) isSubmodule(path string) bool {
	full := filepath.Join(w.Root, filepath.FromSlash(path))
	if _, err := os.Lstat(filepath.Join(full, ".git")); err == nil {
		return true
	}
	if w.modules == nil {
		w.modules = submodulePaths(w.Root)
	}
	if !w.modules[path] {
		return false
	}
	entries, err := os.ReadDir(full)
	return err == nil && len(entries) > 0
}

// visit takes one file or link, and reports whether it is in the tree.
func (w *scan) visit(l Listed, info fs.FileInfo) bool {
	size := info.Size()
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return w.visitLink(l, info)
	case !mode.IsRegular():
		w.leaveOut(l.Path, ckpt.LeftOutSpecial)
		return false
	case size > w.most.File:
		w.leaveOut(l.Path, ckpt.LeftOutTooLarge)
		return false
	}
	if !w.reserve(size) {
		w.leaveOut(l.Path, ckpt.LeftOutTreeFull)
		w.incomplete()
		return false
	}
	is := newRecord(l, info)
	was, known := w.before.records[l.Path]
	if known && was.same(&is) {
		was.tracked = l.Tracked
		w.keep(was)
		return true
	}
	w.reading <- &reading{path: l.Path, info: info, was: is}
	return true
}

func (w *scan) visitLink(l Listed, info fs.FileInfo) bool {
	target, err := os.Readlink(filepath.Join(w.Root, filepath.FromSlash(l.Path)))
	switch {
	case err != nil:
		w.leaveOut(l.Path, ckpt.LeftOutUnreadable)
		return false
	case len(target) > ckpt.MaxTreeTarget:
		w.leaveOut(l.Path, ckpt.LeftOutTooLarge)
		return false
	case !utf8.ValidString(target) || target == "":
		w.leaveOut(l.Path, ckpt.LeftOutPath)
		return false
	}
	r := newRecord(l, info)
	r.entry = ckpt.TreeEntry{Path: l.Path, Mode: ckpt.LinkMode, Size: int64(len(target)), Target: target}
	w.keep(r)
	return true
}

// newRecord returns what is known about a file before it is read.
func newRecord(l Listed, info fs.FileInfo) record {
	_, inode, changed := identity(info)
	return record{
		entry:    ckpt.TreeEntry{Path: l.Path, Mode: modeOf(info), Size: info.Size()},
		modified: info.ModTime().UnixNano(), changed: changed, inode: inode, mode: uint32(info.Mode()), tracked: l.Tracked,
	}
}

func modeOf(info fs.FileInfo) string {
	const octal = "01234567"
	m := info.Mode().Perm()
	return string([]byte{'0', octal[m>>6&7], octal[m>>3&7], octal[m&7]})
}

// same reports whether a file is certainly unchanged since it was read.
func (r *record) same(now *record) bool {
	return !r.recent && r.entry.SHA256 != "" && r.entry.Size == now.entry.Size && r.modified == now.modified &&
		r.changed == now.changed && r.inode == now.inode && r.mode == now.mode
}

// read reads a file until it does not change during the read.
func (w *scan) read(ctx context.Context, root *os.Root, r *reading) {
	l := Listed{r.path, r.was.tracked}
	reserved := r.info.Size()
	for range tries {
		if ctx.Err() != nil {
			return
		}
		started := w.started
		is, data, err := readOnce(w.Root, root, l, w.most.File, w.AfterRead)
		switch {
		case isGone(err):
			w.release(reserved)
			return
		case errors.Is(err, errChanged):
			continue
		case errors.Is(err, errTooLarge):
			w.release(reserved)
			w.leaveOut(r.path, ckpt.LeftOutTooLarge)
			return
		case err != nil:
			w.release(reserved)
			w.leaveOut(r.path, ckpt.LeftOutUnreadable)
			return
		}
		newest := max(is.modified, is.changed)
		is.recent = newest > started.Add(-settled).UnixNano()
		w.release(reserved)
		if !w.reserve(is.entry.Size) {
			w.leaveOut(r.path, ckpt.LeftOutTreeFull)
			w.incomplete()
			return
		}
		w.keep(is)
		w.hold(is.entry.SHA256, data)
		return
	}
	w.release(reserved)
	w.leaveOut(r.path, ckpt.LeftOutUnstable)
	w.incomplete()
}

var (
	errChanged  = errors.New("it changed while being read")
	errTooLarge = errors.New("it is too large")
)

// readOnce reads and hashes a file, and compares the file's state before and after.
func readOnce(folder string, root *os.Root, l Listed, most int64, afterRead func(string)) (record, []byte, error) {
	named, err := os.Lstat(filepath.Join(folder, filepath.FromSlash(l.Path)))
	if err != nil {
		return record{}, nil, err
	}
	if !named.Mode().IsRegular() {
		return record{}, nil, errChanged
	}
	f, err := root.OpenFile(filepath.FromSlash(l.Path), os.O_RDONLY|noWait, 0)
	if err != nil {
		return record{}, nil, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return record{}, nil, err
	}
	if !os.SameFile(named, before) {
		return record{}, nil, errChanged // a link has replaced it, or a folder on the way to it
	}
	if before.Size() > most {
		return record{}, nil, errTooLarge
	}
	data := make([]byte, before.Size()+1)
	n, err := io.ReadFull(f, data)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return record{}, nil, err
	}
	data = data[:n]
	if afterRead != nil {
		afterRead(l.Path)
	}
	after, err := f.Stat()
	if err != nil {
		return record{}, nil, err
	}
	is, was := newRecord(l, after), newRecord(l, before)
	if is != was || int64(n) != after.Size() {
		return record{}, nil, errChanged
	}
	sum := sha256.Sum256(data)
	is.entry.SHA256 = hex.EncodeToString(sum[:])
	return is, data, nil
}

// Content returns the bytes of an entry of the tree. If they were not kept, it reads the
// file again, and the content must be the same.
func (f *Found) Content(e ckpt.TreeEntry) ([]byte, error) {
	if data, held := f.data[e.SHA256]; held {
		return data, nil
	}
	root, err := os.OpenRoot(f.Tree.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	r, data, err := readOnce(f.Tree.Root, root, Listed{Path: e.Path}, max(e.Size, 0), nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", e.Path, err)
	case r.entry.SHA256 != e.SHA256:
		return nil, fmt.Errorf("%s: %w", e.Path, errChanged)
	}
	return data, nil
}

// Without removes some contents from what was found. Their files become left out, each for
// the given reason.
func (f *Found) Without(contents map[string]ckpt.LeftOutBecause) {
	var kept []ckpt.TreeEntry
	for _, e := range f.Tree.Entries {
		why, gone := contents[e.SHA256]
		if !gone || e.IsLink() {
			kept = append(kept, e)
			continue
		}
		f.Tree.LeftOut = append(f.Tree.LeftOut, ckpt.LeftOut{Path: e.Path, Why: why})
		if why == ckpt.LeftOutUnstable {
			f.Tree.Complete = false
		}
	}
	f.Tree.Entries = kept
	tree.Sort(&f.Tree)
	nameFewer(&f.Tree)
	f.Tree.ID = tree.ID(&f.Tree)
}

// isGone reports that there is nothing at a path.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) }

// folder returns the state of a folder. It looks at each folder only once.
func (w *scan) folder(path string) folderState {
	if state := w.folders[path]; state != folderUnknown {
		return state
	}
	state := w.folder(parent(path))
	if state == folderPlain {
		info, err := w.ahead.lstat(path)
		switch {
		case isGone(err), err == nil && !info.IsDir():
			state = folderGone
		case err != nil:
			state = folderUnreadable
		default:
			if device, _, _ := identity(info); device != w.device {
				state = folderElsewhere
			}
		}
	}
	w.folders[path] = state
	return state
}

func (w *scan) keep(r record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Tree.Entries = append(w.found.Tree.Entries, r.entry)
	w.found.records[r.entry.Path] = r
}

func (w *scan) hold(sum string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Read++
	if _, held := w.found.data[sum]; !held && w.found.held+int64(len(data)) <= mostHeld {
		w.found.data[sum] = data
		w.found.held += int64(len(data))
	}
}

func (w *scan) leaveOut(path string, why ckpt.LeftOutBecause) {
	if path = strings.ToValidUTF8(path, "\uFFFD"); len(path) > ckpt.MaxTreePath {
		path = strings.ToValidUTF8(path[:ckpt.MaxTreePath], "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Tree.LeftOut = append(w.found.Tree.LeftOut, ckpt.LeftOut{Path: path, Why: why})
}

// leaveOutFolder names a folder once, instead of each file below it. The folders above it that
// are in the same state are named instead of it.
func (w *scan) leaveOutFolder(path string, why ckpt.LeftOutBecause) {
	for w.folder(parent(path)) == w.folder(path) {
		path = parent(path)
	}
	if !w.looked[path] {
		w.looked[path] = true
		w.leaveOut(path, why)
	}
}

func (w *scan) incomplete() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Tree.Complete = false
}

func (w *scan) reserve(size int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes+size > w.most.Tree {
		return false
	}
	w.bytes += size
	return true
}

func (w *scan) release(size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes -= size
}

// countVanished counts the files that were in the previous tree and no longer exist.
func (w *scan) countVanished() {
	for path := range w.before.records {
		if _, is := w.found.records[path]; !is {
			_, err := os.Lstat(filepath.Join(w.Root, filepath.FromSlash(path)))
			if isGone(err) {
				w.found.Vanished++
			}
		}
	}
}

// secretNames are patterns of the names of files that hold secrets, in the syntax of
// path.Match.
var secretNames = []string{".env*", "*.pem", "*.key", "id_rsa*", "id_ed25519*", ".netrc", ".npmrc", ".pypirc"}

// aside matches what a restore adds to the name of a file that it keeps.
var aside = regexp.MustCompile(`\.before-[0-9a-f]{8}$`)

// SecretName reports whether a file is left out because of its name, unless git tracks it.
func SecretName(name string) bool {
	name = aside.ReplaceAllString(strings.ToLower(name), "")
	return slices.ContainsFunc(secretNames, func(pattern string) bool {
		matched, _ := path.Match(pattern, name)
		return matched
	})
}
