package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

type diffCmd struct {
	A       string `arg:"" names:"checkpoint" help:"The first checkpoint: ${checkpoint}."`
	B       string `arg:"" names:"checkpoint" help:"The second checkpoint."`
	Unified bool   `short:"u" xor:"form" help:"Show the indented states line by line, as diff -u does."`
	Short   bool   `short:"s" xor:"form" help:"Show only the top-level members that differ."`
}

func (c *diffCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(cli.CheckCheckpointName(c.A), cli.CheckCheckpointName(c.B)); err != nil {
		return err
	}
	first, err := a.CheckpointID(ctx, c.A)
	if err != nil {
		return err
	}
	second, err := a.CheckpointID(ctx, c.B)
	if err != nil {
		return err
	}
	d, err := a.Client().Diff(ctx, first, second)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(d)
	case c.Short:
		shortDiff(a, &d.Summary)
		return nil
	}
	from, err := a.Client().Checkpoint(ctx, first, true)
	if err != nil {
		return err
	}
	if !c.Unified {
		return pathDiff(a, from.State, d.Patch)
	}
	to, err := a.Client().Checkpoint(ctx, second, true)
	if err != nil {
		return err
	}
	unifiedDiff(a, from, to)
	return nil
}

// shortDiff prints a line for each changed member of the top level.
func shortDiff(a *app, s *ckpt.DiffSummary) {
	for _, f := range s.Removed {
		term.Printf(a.Stdout, "%s  %s\n", a.Out.Red("- "+rooted(f.Path)), term.Bytes(f.FromSize))
	}
	for _, f := range s.Changed {
		term.Printf(a.Stdout, "%s  %s → %s\n", a.Out.Yellow("~ "+rooted(f.Path)), valueOrSize(f.From, f.FromSize), valueOrSize(f.To, f.ToSize))
	}
	for _, f := range s.Added {
		term.Printf(a.Stdout, "%s  %s\n", a.Out.Green("+ "+rooted(f.Path)), valueOrSize(f.To, f.ToSize))
	}
	if len(s.Removed)+len(s.Changed)+len(s.Added) == 0 {
		a.Tell("the states are the same")
	}
}

func rooted(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// valueOrSize returns a value if it fits into the line, else its size.
func valueOrSize(value json.RawMessage, size int64) string {
	if len(value) > 0 && size <= 40 {
		return oneLine(ckpt.JSON(value))
	}
	return term.Bytes(size)
}

// pathDiff prints each change with its path, the old value and the new one.
func pathDiff(a *app, from []byte, patch json.RawMessage) error {
	changes, err := explainPatch(from, patch)
	if err != nil {
		return err
	}
	for _, c := range changes {
		term.Println(a.Stdout, a.Out.Bold(rooted(c.path)))
		if c.old != nil {
			term.Println(a.Stdout, a.Out.Red("  - "+clipped(c.old)))
		}
		if c.new != nil {
			term.Println(a.Stdout, a.Out.Green("  + "+clipped(c.new)))
		}
	}
	if len(changes) == 0 {
		a.Tell("the states are the same")
	}
	return nil
}

// clipped shortens a long value, so that it does not fill the screen; --json has it complete.
func clipped(value json.RawMessage) string {
	const most = 500
	text := strings.ToValidUTF8(oneLine(ckpt.JSON(value)), "\uFFFD")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("… (%s)", term.Bytes(int64(len(value))))
}

func unifiedDiff(a *app, from, to *ckpt.Checkpoint) {
	text := diff.Diff(diffName(from), indented(from.State), diffName(to), indented(to.State))
	if len(text) == 0 {
		a.Tell("the states are the same")
	}
	_, text, _ = bytes.Cut(text, []byte("\n")) // its first line repeats the next two
	for line := range strings.Lines(string(text)) {
		term.Println(a.Stdout, view.DiffLine(strings.TrimSuffix(line, "\n"), a.Out))
	}
}

func diffName(c *ckpt.Checkpoint) string {
	return term.Escape(fmt.Sprintf("%s/%s/%d %s", c.Agent, c.Run, c.Seq, c.ID))
}

// indented returns a state with a line for each value. It returns a state that is not JSON
// unchanged.
func indented(state []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(state), "", "  ") != nil {
		return state
	}
	b.WriteByte('\n')
	return b.Bytes()
}
