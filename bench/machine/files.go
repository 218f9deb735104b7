package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type filesCmd struct {
	measure.Flags `embed:""`
	Files         int    `default:"2000" help:"How many files of about 17 kB the folder has. Default: ${default}."`
	Rounds        int    `default:"15" help:"How often three files are changed and kept. Default: ${default}."`
	History       string `help:"A git repository whose last commits are kept one after the other, to see how large that gets." placeholder:"DIR"`
	Commits       int    `default:"100" help:"How many. Default: ${default}."`
}

// filesReport is the output of --json.
type filesReport struct {
	measure.Head
	Files  int          `json:"files"`
	Bytes  int64        `json:"bytes"`
	Rounds int          `json:"rounds"`
	Works  []filesWork  `json:"works"`
	Sizes  *filesStored `json:"sizes,omitempty"`
}

// filesWork is one kind of work on the folder, beside a shadow git.
type filesWork struct {
	Work string          `json:"work"`
	Ours measure.Figures `json:"ours"`
	Git  measure.Figures `json:"shadow_git"`
}

// filesStored is the disk space that the commits of a repository take.
type filesStored struct {
	Commits  int   `json:"commits"`
	Database int64 `json:"database_bytes"`
	Git      int64 `json:"git_bytes"` // of a shadow git with loose objects
}

// filesBench is a folder with a daemon and a shadow git.
type filesBench struct {
	ctx          context.Context
	program      string
	daemon       *measure.Daemon
	root, shadow string
	env          []string
}

func (c *filesCmd) Run(ctx context.Context, a *measure.Env, g *grammar) error {
	if c.Files < 100 || c.Files > 20_000 {
		return cli.Usagef("--files is %d: it is between 100 and 20000", c.Files)
	}
	if c.Rounds < 1 || c.Rounds > 1000 {
		return cli.Usagef("--rounds must be between 1 and 1000; got %d", c.Rounds)
	}
	if c.Commits < 1 || c.Commits > 10_000 {
		return cli.Usagef("--commits is %d: it is between 1 and 10000", c.Commits)
	}
	return a.Measure(ctx, "files", c.Flags, int64(c.Files)*100_000, func(b *measure.Bench) error {
		program, err := filepath.Abs(g.Server)
		if err != nil {
			return err
		}
		report := &filesReport{Files: c.Files, Rounds: c.Rounds}
		if err := c.works(ctx, b, program, report); err != nil {
			return err
		}
		if c.History != "" {
			if report.Sizes, err = c.history(ctx, b, program); err != nil {
				return err
			}
		}
		return b.Report(&report.Head, report, report.text)
	})
}

func (r *filesReport) text(a *measure.Env) {
	fmt.Fprintln(a.Stdout, a.Out.Bold(fmt.Sprintf("%d files, %s", r.Files, term.Bytes(r.Bytes))))
	t := term.NewTable("WORK", ">P50", ">P95", ">SHADOW GIT P50", ">P95")
	for _, w := range r.Works {
		t.Add(w.Work, term.Millis(w.Ours.P50), term.Millis(w.Ours.P95), term.Millis(w.Git.P50), term.Millis(w.Git.P95))
	}
	t.Write(a.Stdout, a.Out)
	if r.Sizes != nil {
		fmt.Fprintf(a.Stdout, "%d commits: %s in the database, %s in a shadow git\n", r.Sizes.Commits,
			term.Bytes(r.Sizes.Database), term.Bytes(r.Sizes.Git))
	}
}

// start makes a folder, its daemon and its shadow git.
func (c *filesCmd) start(ctx context.Context, b *measure.Bench, program, name string) (*filesBench, error) {
	d, err := b.Start(ctx, name)
	if err != nil {
		return nil, err
	}
	f := &filesBench{ctx: ctx, program: program, daemon: d, root: filepath.Join(b.Dir, name+"-files"), shadow: filepath.Join(b.Dir, name+"-git")}
	f.env = append(os.Environ(), "CKPTSIDECAR_SOCKET="+d.Socket, "CKPTSIDECAR_FILES="+filepath.Join(b.Dir, name+"-state"),
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if err := os.MkdirAll(f.root, 0o755); err != nil {
		return nil, err
	}
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 0
	if _, err := d.ClientOf(0).SetPolicy(ctx, "bench", policy); err != nil {
		return nil, err
	}
	return f, errors.Join(f.git("init", "-q"), f.git("config", "gc.auto", "0"), f.do("git", "init", "-q", f.root))
}

// do runs a program in the folder.
func (f *filesBench) do(name string, args ...string) error {
	_, err := f.said(name, args...)
	return err
}

func (f *filesBench) said(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(f.ctx, name, args...)
	cmd.Dir, cmd.Env = f.root, f.env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, &errs)
	}
	return strings.TrimSpace(string(out)), nil
}

func (f *filesBench) git(args ...string) error {
	return f.do("git", append([]string{"--git-dir", f.shadow, "--work-tree", f.root}, args...)...)
}

// commit does what coding agents with a shadow git do at each checkpoint.
func (f *filesBench) commit() error {
	return errors.Join(f.git("add", "-A"), f.git("commit", "-q", "--allow-empty", "--no-verify", "-m", "checkpoint"))
}

func (f *filesBench) snap() error {
	return f.do(f.program, "files", "snap", f.root, "--agent", "bench")
}

// timed measures how long do takes, n times. It calls before ahead of each time.
func timed(n int, before func(i int) error, do func() error) (measure.Figures, error) {
	var times []float64
	began := time.Now()
	for i := range n {
		if err := before(i); err != nil {
			return measure.Figures{}, err
		}
		start := time.Now()
		if err := do(); err != nil {
			return measure.Figures{}, err
		}
		times = append(times, measure.Milliseconds(time.Since(start)))
	}
	return measure.FiguresOf(times, time.Since(began)), nil
}

// both measures the same work for both.
func (f *filesBench) both(r *filesReport, work string, n int, before func(i int) error, ours, git func() error) error {
	w := filesWork{Work: work}
	var err error
	if w.Ours, err = timed(n, before, ours); err == nil {
		w.Git, err = timed(n, func(i int) error { return before(n + i) }, git)
	}
	r.Works = append(r.Works, w)
	return err
}

func nothing(int) error { return nil }

func (c *filesCmd) works(ctx context.Context, b *measure.Bench, program string, r *filesReport) error {
	f, err := c.start(ctx, b, program, "works")
	if err != nil {
		return err
	}
	m := measure.NewMaterial(c.Seed)
	b.Shown.Say("writing %d files", c.Files)
	for i := range c.Files {
		text := strings.Join(m.File(420), "\n")
		r.Bytes += int64(len(text))
		if err := f.write(i, text); err != nil {
			return err
		}
	}
	if err := f.both(r, "the first time", 1, nothing, f.snap, f.commit); err != nil {
		return err
	}
	time.Sleep(2500 * time.Millisecond) // files that have just changed are read again
	if err := f.snap(); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(c.Seed, 21))
	change := func(i int) error {
		for range 3 {
			if err := f.write(random.IntN(c.Files), fmt.Sprintf("%s\nround %d\n", strings.Join(m.File(420), "\n"), i)); err != nil {
				return err
			}
		}
		return nil
	}
	b.Shown.Say("changing 3 of %d files", c.Files)
	if err := f.both(r, "3 changed", c.Rounds, change, f.snap, f.commit); err != nil {
		return err
	}
	if dropCaches() == nil {
		cold := func(i int) error { return errors.Join(change(i), dropCaches()) }
		if err := f.both(r, "3 changed, cold", 3, cold, f.snap, f.commit); err != nil {
			return err
		}
	}
	return c.restores(b, f, r, m)
}

// restores changes 500 files and restores them.
func (c *filesCmd) restores(b *measure.Bench, f *filesBench, r *filesReport, m *measure.Material) error {
	before, err := f.said(f.program, "files", "snap", f.root, "--agent", "bench")
	if err != nil {
		return err
	}
	if err := f.commit(); err != nil {
		return err
	}
	n := min(500, c.Files)
	b.Shown.Say("bringing %d files back", n)
	for i := range n {
		if err := f.write(i, strings.Join(m.File(420), "\n")); err != nil {
			return err
		}
	}
	if err := errors.Join(f.snap(), f.commit()); err != nil {
		return err
	}
	restore := func() error { return f.do(f.program, "files", "restore", before, "--yes") }
	undo := func() error { return f.do(f.program, "files", "undo", f.root) }
	w := filesWork{Work: strconv.Itoa(n) + " brought back"}
	if w.Ours, err = timed(1, nothing, restore); err != nil {
		return err
	}
	if err := undo(); err != nil {
		return err
	}
	w.Git, err = timed(1, nothing, func() error { return f.git("checkout", "-q", "HEAD~1", "--", ".") })
	r.Works = append(r.Works, w)
	return err
}

func (f *filesBench) write(i int, text string) error {
	path := filepath.Join(f.root, fmt.Sprintf("d%d/e%d/file%d.txt", i%50, i%7, i))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// history keeps the last commits of a repository, each as a checkpoint.
func (c *filesCmd) history(ctx context.Context, b *measure.Bench, program string) (*filesStored, error) {
	f, err := c.start(ctx, b, program, "history")
	if err != nil {
		return nil, err
	}
	from, err := filepath.Abs(c.History)
	if err != nil {
		return nil, err
	}
	list, err := f.said("git", "-C", from, "rev-list", "--first-parent", "--max-count", strconv.Itoa(c.Commits), "HEAD")
	if err != nil {
		return nil, err
	}
	commits := strings.Fields(list)
	empty, err := databaseBytes(f.daemon.Database)
	if err != nil {
		return nil, err
	}
	for i := len(commits) - 1; i >= 0; i-- {
		b.Shown.Step(int64(len(commits)-i), int64(len(commits)))
		if err := f.do("git", "-C", from, "--work-tree", f.root, "-c", "core.bare=false", "checkout", "-q", "-f", commits[i], "--", "."); err != nil {
			return nil, err
		}
		if err := f.clean(from, commits[i]); err != nil {
			return nil, err
		}
		if err := errors.Join(f.snap(), f.commit()); err != nil {
			return nil, err
		}
	}
	database, err := databaseBytes(f.daemon.Database)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	err = filepath.WalkDir(f.shadow, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += (info.Size() + 4095) &^ 4095 // what it takes on the disk
		}
		return err
	})
	return &filesStored{Commits: len(commits), Database: database - empty, Git: size}, err
}

// clean removes the files that a commit does not have.
func (f *filesBench) clean(from, commit string) error {
	out, err := f.said("git", "-C", from, "ls-tree", "-r", "-z", "--name-only", commit)
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for path := range strings.SplitSeq(out, "\x00") {
		has[path] = true
	}
	return filepath.WalkDir(f.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(f.root, path)
		if d.IsDir() {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		if !has[filepath.ToSlash(name)] {
			return os.Remove(path)
		}
		return nil
	})
}
