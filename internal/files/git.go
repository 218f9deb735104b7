package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// gitTime is how long git may take to list a repository.
const gitTime = 2 * time.Second

// errGitSlow means that git did not finish in time.
var errGitSlow = errors.New("git took longer than 2s")

// gitList asks git which files a folder has. This package never runs another command of
// git: plain ls-files would run the program that core.fsmonitor names, and status would
// run the clean filters. Both settings can come with the repository. ceiling is the
// folder above which git must not look for a repository, "" for none.
func gitList(ctx context.Context, folder, ceiling string) (*gitListing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gitTime, errGitSlow)
	defer cancel()
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("git was not found: %w", err)
	}
	// -t marks which paths are tracked.
	cmd := exec.CommandContext(ctx, git, "-c", "core.fsmonitor=false", "ls-files", "-co", "--exclude-standard", "-z", "-t")
	cmd.Dir = folder
	cmd.Env = gitEnvironment(os.Environ(), ceiling)
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if context.Cause(ctx) != nil {
			return nil, context.Cause(ctx)
		}
		line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return nil, fmt.Errorf("git ls-files: %w: %s", err, line)
	}
	l := &gitListing{unopened: unopened(said.String())}
	for part := range strings.SplitSeq(out.String(), "\x00") {
		if len(part) < 3 {
			continue
		}
		if part[0] == '?' {
			l.others = append(l.others, part[2:])
		} else if n := len(l.tracked); n == 0 || l.tracked[n-1] != part[2:] { // a conflict has a path three times
			l.tracked = append(l.tracked, part[2:])
		}
	}
	return l, nil
}

// gitListing is what git has listed. The paths are as git returns them; those of folders can
// end with a slash.
type gitListing struct {
	tracked, others []string
	unopened        []string // folders that git could not open, relative to the top of the repository
}

// unopened returns the folders that git could not open, according to its warnings. git lists
// the rest then, and counts that as success.
func unopened(said string) (folders []string) {
	for line := range strings.Lines(said) {
		rest, found := strings.CutPrefix(line, "warning: could not open directory '")
		if !found || strings.HasSuffix(line, ": No such file or directory\n") { // it was removed in the meantime
			continue
		}
		if end := strings.LastIndex(rest, "': "); end >= 0 {
			rest = rest[:end]
		}
		folders = append(folders, strings.TrimSuffix(rest, "/"))
	}
	return folders
}

// askedGit is a listing by git that is under way.
type askedGit struct {
	done    chan struct{}
	listing *gitListing
	err     error
}

// askGit begins to list a root.
func askGit(ctx context.Context, root string) *askedGit {
	g := &askedGit{done: make(chan struct{})}
	go func() {
		defer close(g.done)
		g.listing, g.err = gitList(ctx, root, "")
	}()
	return g
}

func (g *askedGit) wait() (*gitListing, error) {
	<-g.done
	return g.listing, g.err
}

// gitEnvironment returns an environment in which git finds the repository of its folder
// and contacts no server. Without it, a hook of git would pass on its own repository, and
// a partial clone would fetch what is missing.
func gitEnvironment(environ []string, ceiling string) []string {
	var env []string
	for _, v := range environ {
		if !strings.HasPrefix(strings.ToUpper(v), "GIT_") {
			env = append(env, v)
		}
	}
	env = append(env, "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	if ceiling != "" {
		env = append(env, "GIT_CEILING_DIRECTORIES="+ceiling)
	}
	return env
}

// gitFolder returns the folder where a repository keeps its data: folder/.git, or the
// folder that the file of that name points to, as in worktrees and submodules. It returns
// "" if there is none.
func gitFolder(folder string) string {
	at := filepath.Join(folder, ".git")
	info, err := os.Lstat(at)
	switch {
	case err != nil:
		return ""
	case info.IsDir():
		return at
	case !info.Mode().IsRegular():
		return ""
	}
	to, found := strings.CutPrefix(smallText(at), "gitdir: ")
	if !found {
		return ""
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(folder, to)
	}
	return to
}

// gitTop returns the folder of the repository that contains a folder, the root of the file
// system for none.
func gitTop(folder string) string {
	for gitFolder(folder) == "" && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
	}
	return folder
}

// gitHead returns the commit that is checked out in a folder or above it, "" if that
// cannot be determined. It reads the files of the repository, and does not run git.
func gitHead(folder string) string {
	git := gitFolder(gitTop(folder))
	if git == "" {
		return ""
	}
	head := smallText(filepath.Join(git, "HEAD"))
	ref, symbolic := strings.CutPrefix(head, "ref: ")
	if !symbolic {
		return commitID(head)
	}
	common := git
	if to := smallText(filepath.Join(git, "commondir")); to != "" {
		if common = to; !filepath.IsAbs(to) {
			common = filepath.Join(git, to)
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(ref)) {
		return ""
	}
	for _, in := range []string{git, common} {
		if id := commitID(smallText(filepath.Join(in, filepath.FromSlash(ref)))); id != "" {
			return id
		}
	}
	packed, err := readPlain(filepath.Join(common, "packed-refs"), 8<<20)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(packed)) {
		if id, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref {
			return commitID(id)
		}
	}
	return ""
}

// submodulePaths returns the paths of submodules that .gitmodules names.
func submodulePaths(root string) map[string]bool {
	paths := map[string]bool{}
	text, err := readPlain(filepath.Join(root, ".gitmodules"), maxIgnoreFile)
	if err != nil {
		return paths
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, "="); strings.TrimSpace(key) == "path" {
			paths[strings.TrimSpace(value)] = true
		}
	}
	return paths
}

func commitID(s string) string {
	if (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == "" {
		return s
	}
	return ""
}

// smallText returns a short file without the line feed at its end, "" if it cannot be
// read.
func smallText(path string) string {
	text, err := readPlain(path, ckpt.MaxTreePath)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(text), "\r\n")
}

// Head returns the commit that is checked out in a folder, "" for none.
func Head(folder string) string { return gitHead(folder) }
