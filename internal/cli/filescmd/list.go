package filescmd

import (
	"bytes"
	"context"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

type listCmd struct {
	Checkpoint string `arg:"" names:"checkpoint" help:"The checkpoint: ${checkpoint}."`
	Root       string `help:"Those of this folder, where the checkpoint has several." placeholder:"DIR"`
}

func (c *listCmd) Run(ctx context.Context, a *cli.App) error {
	var err error
	if c.Checkpoint, err = a.CheckpointID(ctx, c.Checkpoint); err != nil {
		return err
	}
	t, err := treeOf(ctx, a, c.Checkpoint, c.Root)
	if err != nil {
		return err
	}
	if t.Entries, err = entriesOf(ctx, a, c.Checkpoint, t); err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(t)
	}
	table := term.NewTable("MODE", ">SIZE", "?SHA256", "PATH")
	for _, e := range t.Entries {
		path, sum := e.Path, e.SHA256
		if e.IsLink() {
			path += " -> " + e.Target
		}
		if len(sum) > 12 {
			sum = sum[:12]
		}
		table.Add(modeText(&e), term.Bytes(e.Size), sum, path)
	}
	table.Write(a.Stdout, a.Out)
	a.Tell("%s of %s in %s, seen %s", term.Count(len(t.Entries), "file"), term.Bytes(t.Bytes), t.Root, term.Moment(t.CapturedAt))
	leftOutText(a, t.LeftOut)
	if !t.Complete {
		a.Tell("%s more may be missing than are listed here", a.Err.Yellow("incomplete:"))
	}
	return nil
}

type diffCmd struct {
	A       string `arg:"" names:"checkpoint" help:"The first checkpoint: ${checkpoint}."`
	B       string `arg:"" names:"checkpoint" optional:"" help:"The second checkpoint. Default: the files that are there now."`
	Root    string `help:"The files of this folder, where a checkpoint has several." placeholder:"DIR"`
	Unified bool   `short:"u" help:"Show the lines that differ, as diff -u does."`
}

func (c *diffCmd) Run(ctx context.Context, a *cli.App) error {
	if err := c.resolve(ctx, a); err != nil {
		return err
	}
	d, read, err := c.compare(ctx, a)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(d)
	case len(d.Changes) == 0:
		a.Tell("the files are the same")
		return nil
	}
	for i := range d.Changes {
		changeText(a, &d.Changes[i])
		if c.Unified {
			if err := unified(a, &d.Changes[i], read); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolve finds the named checkpoints.
func (c *diffCmd) resolve(ctx context.Context, a *cli.App) (err error) {
	if err := cli.Checked(cli.CheckCheckpointName(c.A), cli.Given(c.B, cli.CheckCheckpointName)); err != nil {
		return err
	}
	if c.A, err = a.CheckpointID(ctx, c.A); err == nil && c.B != "" {
		c.B, err = a.CheckpointID(ctx, c.B)
	}
	return err
}

// reader returns the bytes of an entry; before says on which side the entry is.
type reader func(e *ckpt.TreeEntry, before bool) ([]byte, error)

func (c *diffCmd) compare(ctx context.Context, a *cli.App) (*ckpt.FilesDiff, reader, error) {
	first, err := a.Client().Checkpoint(ctx, c.A, false)
	if err != nil {
		return nil, nil, err
	}
	stored := func(e *ckpt.TreeEntry) ([]byte, error) { return a.Client().Content(ctx, first.Agent, e.SHA256) }
	if c.B != "" {
		root := c.Root
		if root != "" {
			trees, err := treesOf(ctx, a, c.A)
			if err == nil {
				root, err = rootIn(trees, root)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		d, err := changesOf(ctx, a, c.A, c.B, root)
		return d, func(e *ckpt.TreeEntry, _ bool) ([]byte, error) { return stored(e) }, err
	}
	t, err := treeOf(ctx, a, c.A, c.Root)
	if err != nil {
		return nil, nil, err
	}
	entries, err := entriesOf(ctx, a, c.A, t)
	if err != nil {
		return nil, nil, err
	}
	root := t.Root
	if c.Root != "" {
		root = c.Root
	}
	p, err := placeOf(a, root)
	if err != nil {
		return nil, nil, err
	}
	found, err := p.look(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	d := &ckpt.FilesDiff{Root: p.root, From: t.ID, To: found.Tree.ID, Changes: tree.Diff(entries, found.Tree.Entries)}
	if d.Changes == nil {
		d.Changes = []ckpt.FileChange{}
	}
	return d, func(e *ckpt.TreeEntry, before bool) ([]byte, error) {
		if before {
			return stored(e)
		}
		return found.Content(*e)
	}, nil
}

func changeText(a *cli.App, c *ckpt.FileChange) {
	switch c.Change {
	case ckpt.FileAdded:
		term.Println(a.Stdout, a.Out.Green("+ "+c.Path))
	case ckpt.FileRemoved:
		term.Println(a.Stdout, a.Out.Red("- "+c.Path))
	case ckpt.FileMode:
		term.Println(a.Stdout, a.Out.Yellow("~ "+c.Path)+"  "+modeText(c.Before)+" → "+modeText(c.After))
	default:
		term.Println(a.Stdout, a.Out.Yellow("~ "+c.Path))
	}
}

// modeText returns a mode in the form of ls.
func modeText(e *ckpt.TreeEntry) string {
	if e.IsLink() {
		return "lrwxrwxrwx"
	}
	bits, err := strconv.ParseUint(e.Mode, 8, 32)
	if err != nil {
		return e.Mode
	}
	return fs.FileMode(bits).Perm().String()
}

// unified shows the lines of a text that differ.
func unified(a *cli.App, c *ckpt.FileChange, read reader) error {
	before, err := sideOf(c.Before, true, read)
	if err != nil {
		return err
	}
	after, err := sideOf(c.After, false, read)
	if err != nil {
		return err
	}
	if !isText(before) || !isText(after) {
		term.Println(a.Stdout, "  (not text)")
		return nil
	}
	text := diff.Diff(c.Path, before, c.Path, after)
	_, text, _ = bytes.Cut(text, []byte("\n")) // its first line repeats the next two
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "@@"):
			line = a.Out.Cyan(line)
		case strings.HasPrefix(line, "-"):
			line = a.Out.Red(line)
		case strings.HasPrefix(line, "+"):
			line = a.Out.Green(line)
		}
		term.Println(a.Stdout, line)
	}
	return nil
}

func sideOf(e *ckpt.TreeEntry, before bool, read reader) ([]byte, error) {
	switch {
	case e == nil:
		return nil, nil
	case e.IsLink():
		return []byte(e.Target + "\n"), nil
	}
	return read(e, before)
}

func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }
