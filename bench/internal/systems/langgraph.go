package systems

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

// langGraph is LangGraph's JavaScript saver for SQLite, in a Node process. This benchmark adds the
// pragma synchronous=FULL: as shipped, a put is not flushed.
type langGraph struct {
	w    *Workshop
	node string
	dir  string // with node_modules
}

//go:embed langgraph/driver.mjs langgraph/package.json langgraph/package-lock.json langgraph/.npmrc
var langGraphFiles embed.FS

func (s *langGraph) Name() string  { return "langgraph" }
func (s *langGraph) Title() string { return "LangGraph JS SQLite saver, synchronous=FULL, put" }

func (s *langGraph) Prepare(ctx context.Context, w *Workshop) (err error) {
	s.w, s.dir = w, filepath.Join(w.Cache, "langgraph")
	if s.node, err = exec.LookPath("node"); err != nil {
		return fmt.Errorf("there is no node in PATH; Debian has it as the packages nodejs and npm: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	key := sha256.New()
	fmt.Fprintln(key, w.version(ctx, s.node, "--version")) // the build works with one version of Node only
	files, err := langGraphFiles.ReadDir("langgraph")
	for _, f := range files {
		text, err := langGraphFiles.ReadFile("langgraph/" + f.Name())
		if err != nil {
			return err
		}
		if f.Name() != "driver.mjs" {
			fmt.Fprintf(key, "%s %x\n", f.Name(), sha256.Sum256(text))
		}
		if err := os.WriteFile(filepath.Join(s.dir, f.Name()), text, 0o644); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return s.install(ctx, key.Sum(nil))
}

// install fetches the packages that package-lock.json names, unless that was done before.
func (s *langGraph) install(ctx context.Context, key []byte) error {
	done := filepath.Join(s.dir, "installed")
	if had, err := os.ReadFile(done); err == nil && bytes.Equal(had, key) {
		return nil
	}
	if s.w.Offline {
		return fmt.Errorf("it is not installed in %s", s.dir)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("there is no npm in PATH: %w", err)
	}
	s.w.Say("installing the LangGraph saver; where its SQLite must be compiled, this takes minutes")
	err = host.Run(ctx, host.Spec{Name: "npm ci", Path: npm, Dir: s.dir, Args: []string{"ci", "--no-audit", "--no-fund", "--loglevel=error"}})
	if err != nil {
		return err
	}
	return os.WriteFile(done, key, 0o644)
}

func (s *langGraph) Start(ctx context.Context, dir string) (*Instance, error) {
	d, err := startDriver(ctx, host.Spec{
		Name: "the driver of langgraph", Path: s.node, Dir: s.dir, Env: []string{"NODE_ENV=production", "LANGSMITH_TRACING=false"},
		Args: []string{"driver.mjs", filepath.Join(dir, "checkpoints.db"), s.w.Corpus},
	})
	if err != nil {
		return nil, err
	}
	return &Instance{driver: d, dir: dir, Version: d.version}, nil
}
