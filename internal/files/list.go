package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// maxNesting is how deep repositories inside repositories are searched.
const maxNesting = 32

// maxListed is how many names a listing has at most, so that a folder with millions of files
// does not take all memory. A tree holds fewer.
const maxListed = 10 * ckpt.MaxTreeFiles

// maxIgnoreFile is the most bytes of a file of patterns.
const maxIgnoreFile = 1 << 20

// Choice says which files are wanted in addition to those that git or the walk finds,
// and which are not wanted. The patterns have the syntax of .gitignore.
type Choice struct {
	Include []string // kept although they are ignored
	Exclude []string // never kept
}

// Listing is the names of the files of a root.
type Listing struct {
	Paths    []Listed // sorted, without duplicates
	LeftOut  []ckpt.LeftOut
	Walked   bool   // at least a part was not listed by git
	GitError string // why git did not list the root; "" if it did
	Slow     bool   // at least a part was not listed by git in time
	Failed   error  // a part could not be listed at all: files that are not named may still exist
}

// Listed is one path.
type Listed struct {
	Path    string
	Tracked bool // by git
}

// list names the files below a root. It names a submodule like a file; Submodules lists
// the files in it. The caller may have asked git about the root already.
func list(ctx context.Context, root string, choice Choice, asked *askedGit) *Listing {
	l := newLister(ctx, root, choice)
	l.asked = asked
	l.repository("", 0)
	if len(l.include.list) > 0 {
		l.walkIncluded("")
	}
	return l.done()
}

// Submodules names the files below folders that a listing has named because git tracks
// them: submodules. depth is how many repositories are around them.
func Submodules(ctx context.Context, root string, choice Choice, folders []string, depth int) *Listing {
	l := newLister(ctx, root, choice)
	for _, folder := range folders {
		l.nested(folder, depth)
	}
	return l.done()
}

func newLister(ctx context.Context, root string, choice Choice) *lister {
	return &lister{
		ctx: ctx, root: root, out: &Listing{}, names: map[string]bool{}, most: maxListed,
		exclude: parseRules("", []byte(strings.Join(choice.Exclude, "\n"))),
		include: parseRules("", []byte(strings.Join(choice.Include, "\n"))),
	}
}

func (l *lister) done() *Listing {
	l.out.Paths = make([]Listed, 0, len(l.names))
	for path, tracked := range l.names {
		l.out.Paths = append(l.out.Paths, Listed{path, tracked})
	}
	slices.SortFunc(l.out.Paths, func(a, b Listed) int { return strings.Compare(a.Path, b.Path) })
	return l.out
}

type lister struct {
	ctx              context.Context
	root             string
	out              *Listing
	names            map[string]bool // true if git tracks it
	most             int             // how many names there may be
	include, exclude *rules
	asked            *askedGit // about the root; nil if git was not asked yet
}

func (l *lister) full(path string) string { return filepath.Join(l.root, filepath.FromSlash(path)) }

// repository lists a folder with git, or with a walk if git fails.
func (l *lister) repository(folder string, depth int) {
	ceiling := ""
	if folder != "" {
		ceiling = filepath.Dir(l.full(folder)) // so that a broken repository does not list the one around it
	}
	listing, err := l.git(folder, ceiling)
	if err == nil && folder == "" && len(listing.tracked)+len(listing.others) == 0 && gitFolder(l.root) == "" {
		err = errors.New("git lists nothing: the repository around the folder may ignore it")
	}
	if err != nil {
		if folder == "" {
			l.out.GitError = err.Error()
		}
		l.out.Walked, l.out.Slow = true, l.out.Slow || errors.Is(err, errGitSlow)
		l.walk(folder, depth, l.outerRules(folder))
		return
	}
	for _, path := range listing.tracked {
		l.found(folder, path, true, depth)
	}
	for _, path := range listing.others {
		l.found(folder, path, false, depth)
	}
	for _, path := range listing.unopened {
		l.unopened(filepath.Join(gitTop(l.full(folder)), filepath.FromSlash(path)))
	}
}

// unopened notes a folder whose files are not listed, because it cannot be opened.
func (l *lister) unopened(full string) {
	path, err := filepath.Rel(l.root, full)
	path = filepath.ToSlash(path)
	if l.excludesFolder(path) || l.isExcluded(path) {
		return
	}
	if _, is := os.Lstat(full); err != nil || is != nil || !filepath.IsLocal(path) {
		l.out.Failed = fmt.Errorf("%s cannot be opened", full)
		return
	}
	l.leaveOut(path, ckpt.LeftOutUnreadable)
}

// git asks git about a folder, unless it was asked already.
func (l *lister) git(folder, ceiling string) (*gitListing, error) {
	if folder == "" && l.asked != nil {
		return l.asked.wait()
	}
	return gitList(l.ctx, l.full(folder), ceiling)
}

// outerRules returns the rules in info/exclude of a repository that git did not list.
func (l *lister) outerRules(folder string) []*rules {
	git := gitFolder(l.full(folder))
	if git == "" {
		return nil
	}
	text, err := readPlain(filepath.Join(git, "info", "exclude"), maxIgnoreFile)
	if err != nil {
		return nil
	}
	return []*rules{parseRules(folder, text)}
}

// found takes a path from git's listing of a folder.
func (l *lister) found(folder, path string, tracked bool, depth int) {
	if inner, isFolder := strings.CutSuffix(path, "/"); isFolder {
		l.nested(join(folder, inner), depth)
		return
	}
	l.take(join(folder, path), tracked)
}

// nested lists a repository inside another one.
func (l *lister) nested(folder string, depth int) {
	switch {
	case l.excludesFolder(folder):
	case depth == maxNesting:
		l.leaveOut(folder, ckpt.LeftOutTooDeep)
	case !l.plainFolder(folder):
	default:
		l.repository(folder, depth+1)
	}
}

// plainFolder reports whether a path is a folder and no part of the path is a link.
func (l *lister) plainFolder(path string) bool {
	for at := path; at != "" && at != "."; at = parent(at) {
		if info, err := os.Lstat(l.full(at)); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

func (l *lister) take(path string, tracked bool) {
	if l.isExcluded(path) {
		return
	}
	if _, known := l.names[path]; !known && l.isFull() {
		return
	}
	l.names[path] = l.names[path] || tracked
}

// isFull reports that there is no room for another name. The listing has failed then.
func (l *lister) isFull() bool {
	if len(l.names) < l.most {
		return false
	}
	l.out.Failed = fmt.Errorf("only %d files are listed, and there may be more", l.most)
	return true
}

func (l *lister) excludesFolder(path string) bool {
	return ignored([]*rules{l.exclude}, path, true)
}

// isExcluded reports whether the patterns of files.exclude match a path or one of its
// folders.
func (l *lister) isExcluded(path string) bool {
	return len(l.exclude.list) > 0 && coveredBy(l.exclude, path)
}

// coveredBy reports whether rules match a path or a folder that contains it.
func coveredBy(r *rules, path string) bool {
	for at := 0; ; at++ {
		next := strings.IndexByte(path[at:], '/')
		if next < 0 {
			return ignored([]*rules{r}, path, false)
		}
		at += next
		if ignored([]*rules{r}, path[:at], true) {
			return true
		}
	}
}

func (l *lister) leaveOut(path string, why ckpt.LeftOutBecause) {
	l.out.LeftOut = append(l.out.LeftOut, ckpt.LeftOut{Path: path, Why: why})
}

// skipped are folders that a walk does not enter: tools make them, they are large, and
// they can be made again.
var skipped = []string{
	"node_modules", "bower_components", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache",
	".gradle", ".terraform", ".next", ".nuxt", ".cache", ".hg", ".svn", ".idea", "target", "Pods", "DerivedData", ".direnv",
}

// walk lists a folder without git.
func (l *lister) walk(folder string, depth int, above []*rules) {
	entries, err := os.ReadDir(l.full(folder))
	switch {
	case err == nil:
	case folder == "":
		l.out.Failed = err
		return
	case errors.Is(err, fs.ErrNotExist):
		return
	default:
		l.unopened(l.full(folder))
		return
	}
	if err := l.ctx.Err(); err != nil {
		l.out.Failed = err
		return
	}
	if l.isFull() {
		return
	}
	all := above
	if text, err := readPlain(filepath.Join(l.full(folder), ".gitignore"), maxIgnoreFile); err == nil {
		all = append(slices.Clip(above), parseRules(folder, text))
	}
	for _, e := range entries {
		path := join(folder, e.Name())
		switch {
		case !e.IsDir():
			if !ignored(all, path, false) {
				l.take(path, false)
			}
		case strings.EqualFold(e.Name(), ".git"), slices.Contains(skipped, e.Name()):
		case ignored(all, path, true), l.excludesFolder(path):
		case gitFolder(l.full(path)) != "":
			l.nested(path, depth)
		default:
			l.walk(path, depth, all)
		}
	}
}

// walkIncluded adds the files that files.include names.
func (l *lister) walkIncluded(folder string) {
	entries, err := os.ReadDir(l.full(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && folder != "" && coveredBy(l.include, folder+"/x") {
		l.unopened(l.full(folder))
	}
	if err != nil || l.ctx.Err() != nil || l.isFull() {
		return
	}
	for _, e := range entries {
		path := join(folder, e.Name())
		switch {
		case strings.EqualFold(e.Name(), ".git"):
		case !e.IsDir():
			if coveredBy(l.include, path) {
				l.take(path, false)
			}
		default:
			l.walkIncluded(path)
		}
	}
}

func join(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}

// parent returns the folder of a path, "" for the root.
func parent(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 0)]
}
