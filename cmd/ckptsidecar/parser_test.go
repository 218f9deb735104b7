package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// shapeOf describes what a command and its subcommands accept.
func shapeOf(n *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %v %v\n", n.FullPath(), n.Help, n.Hidden, n.Group)
	for _, p := range n.Positional {
		fmt.Fprintf(&b, "  %s %v %q\n", p.Summary(), p.Required, p.Tag.Get("names"))
	}
	for _, f := range n.Flags {
		fmt.Fprintf(&b, "  %s %q %v\n", f.String(), f.Help, f.Hidden)
	}
	for _, child := range n.Children {
		b.WriteString(shapeOf(child))
	}
	return b.String()
}

// TestPartsOfTheGrammarAreTheWhole: each command is the same whether the parser
// knows the rest of the grammar or not.
func TestPartsOfTheGrammarAreTheWhole(t *testing.T) {
	t.Parallel()
	options := []kong.Option{kong.Name("ckptsidecar"), kong.Exit(func(int) {}), kong.ExplicitGroups(groups), helpVars}
	whole, err := kong.New(&grammar{}, options...)
	if err != nil {
		t.Fatal(err)
	}
	alone := 0
	for _, command := range whole.Model.Children {
		g := &grammar{}
		if _, enough := partOf(g, []string{command.Name}); !enough {
			continue
		}
		alone++
		part, err := parserFor(g, []string{command.Name}, options)
		if err != nil {
			t.Fatal(err)
		}
		if len(part.Model.Children) != 1 {
			t.Fatalf("%s comes with %d commands", command.Name, len(part.Model.Children))
		}
		if diff := cmp.Diff(shapeOf(command), shapeOf(part.Model.Children[0])); diff != "" {
			t.Errorf("%s: %s", command.Name, diff)
		}
	}
	if want := len(whole.Model.Children) - 4; alone != want { // all but help, completion, man and complete-names
		t.Errorf("%d commands need a part of the grammar; it should be %d", alone, want)
	}
}
