package hookcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// place is the location of the settings.
type place struct {
	forProduct
	Project bool   `xor:"place" help:"In the settings of the project that this folder belongs to."`
	User    bool   `xor:"place" help:"In your own settings, for all projects. This is the default."`
	File    string `xor:"place" help:"In this file." placeholder:"FILE"`
	Yes     bool   `short:"y" help:"Write without asking."`
	DryRun  bool   `help:"Show what would be written, and write nothing."`
}

type installCmd struct {
	place
	options
}

type uninstallCmd struct{ place }

func (c *installCmd) Run(ctx context.Context, a *cli.App) error {
	if err := c.options.check(); err != nil {
		return err
	}
	file, err := c.place.file(a)
	if err != nil {
		return err
	}
	command, err := c.command(a)
	if err != nil {
		return err
	}
	done, err := c.place.change(a, file, func(settings []byte) ([]byte, error) {
		return hook.Install(hook.Product(c.For), settings, command, c.options.most(a.Env))
	})
	if err == nil && done && hook.Product(c.For) == hook.Codex {
		a.Tell("Codex runs hooks that you have reviewed: open /hooks in it. Older versions want codex_hooks = true under [features] in config.toml.")
	}
	if err == nil && c.Files {
		a.Tell("`ckptsidecar rewind` goes back before a prompt; docs/FILES.md says what is kept")
	}
	return err
}

func (c *uninstallCmd) Run(ctx context.Context, a *cli.App) error {
	file, err := c.place.file(a)
	if err != nil {
		return err
	}
	_, err = c.place.change(a, file, hook.Uninstall)
	return err
}

// file returns the product's settings file.
func (c *place) file(a *cli.App) (string, error) {
	if c.For == "" {
		return "", cli.Usagef("name the coding agent: --for claude-code, codex or gemini")
	}
	if c.File != "" {
		return c.File, nil
	}
	if c.Project {
		folder, err := os.Getwd()
		return hook.SettingsFile(hook.Product(c.For), hook.Root(folder), nil), err
	}
	home, err := os.UserHomeDir()
	return hook.SettingsFile(hook.Product(c.For), home, a.Env), err
}

// command returns how the product calls this program: by its name if the path finds it,
// else by its path.
func (c *installCmd) command(a *cli.App) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the path of this program is unknown: %w", err)
	}
	program := self
	if found, err := exec.LookPath("ckptsidecar"); err == nil && sameFile(found, self) {
		program = "ckptsidecar"
	}
	words := []string{pathWord(program), "hook", "--for", c.For}
	for _, word := range c.options.words() {
		words = append(words, commandWord(word))
	}
	if a.Socket != "" {
		socket, err := filepath.Abs(a.Socket) // the product calls the hook in another folder
		if err != nil {
			return "", err
		}
		words = append(words, "--socket", pathWord(socket))
	}
	return strings.Join(words, " "), nil
}

func sameFile(one, two string) bool {
	a, err1 := os.Stat(one)
	b, err2 := os.Stat(two)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// change shows how a settings file would change, asks, and writes it.
func (c *place) change(a *cli.App, file string, edit func([]byte) ([]byte, error)) (done bool, err error) {
	owner, err := osfile.Controller(filepath.Dir(file))
	if err != nil {
		return false, err
	}
	if err := owner.Become(); err != nil { // root must write nothing through a link that another user created
		return false, err
	}
	file = behindLinks(file)
	settings, err := readSettings(file)
	if err != nil {
		return false, err
	}
	changed, err := edit(settings)
	if err != nil {
		return false, fmt.Errorf("%s: %w; nothing was changed", file, err)
	}
	if bytes.Equal(settings, changed) || len(settings) == 0 && strings.TrimSpace(string(changed)) == "{}" {
		a.Tell("%s is up to date: nothing to change", file)
		return false, nil
	}
	showChange(a, file, settings, changed)
	switch {
	case c.DryRun:
		a.Tell("this is the new %s; nothing was written", file)
		return false, nil
	case !c.Yes && !a.Interactive:
		return false, cli.Usagef("standard input is not a terminal, so ckptsidecar cannot ask: "+
			"add --yes to write this to %s, or --dry-run to only look",
			file)
	case !c.Yes && !a.Agrees(fmt.Sprintf("Write this to %s? [y/N] ", file)):
		a.Tell("nothing was written")
		return false, nil
	}
	// While a person decides, the product may change its settings.
	if now, err := readSettings(file); err != nil || !bytes.Equal(now, settings) {
		return false, errors.Join(err, fmt.Errorf("%s was changed meanwhile, so nothing was written: run the command again", file))
	}
	if err := writeSettings(file, changed); err != nil {
		return false, err
	}
	a.Tell("%s %s", a.Err.Green("written:"), file)
	return true, nil
}

// showChange shows the changes of a file as a unified diff.
func showChange(a *cli.App, file string, before, after []byte) {
	text := diff.Diff(file, before, file+" (new)", after)
	_, text, _ = bytes.Cut(text, []byte("\n")) // its first line repeats the next two
	for line := range strings.Lines(string(text)) {
		term.Println(a.Stdout, view.DiffLine(strings.TrimSuffix(line, "\n"), a.Out))
	}
}

// behindLinks returns the real path of a file, even if it does not exist yet. A person
// must agree to that path. It follows links as far as the path exists.
func behindLinks(file string) string {
	if path, err := filepath.Abs(file); err == nil {
		file = path
	}
	missing := ""
	for at := file; ; at = filepath.Dir(at) {
		if target, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(target, missing)
		}
		if at == filepath.Dir(at) {
			return file
		}
		missing = filepath.Join(filepath.Base(at), missing)
	}
}

// readSettings reads a file, which may be missing.
func readSettings(file string) ([]byte, error) {
	settings, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return settings, err
}

// writeSettings writes a file and keeps its mode and owner.
func writeSettings(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return osfile.Replace(file, text, 0o644)
}
