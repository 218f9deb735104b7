package main

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// everyday are the commands on the first page of the help, by task.
var everyday = []struct {
	task     string
	commands []string
}{
	{"Save and go on", []string{"save", "restore", "resume", "exec"}},
	{"Look", []string{"overview", "runs", "log", "list", "console"}},
	{"Decide", []string{"prompts", "operations", "drift"}},
	{"Keep and clean", []string{"policy", "pin", "prune", "erase"}},
	{"Audit", []string{"audit", "verify", "backup"}},
	{"Run as a service", []string{"serve", "service", "status", "doctor"}},
	{"Connect agents", []string{"hook", "mcp"}},
}

// helpPages are the words of `help` that are not commands.
var helpPages = []string{"more", "flags"}

type helpCmd struct {
	Topic []string `arg:"" optional:"" help:"A command; more for all commands and the exit codes; flags for the flags of every command."`
}

// Run prints a page of the help, or the help of a command.
func (c *helpCmd) Run(a *app, parser *kong.Kong) error {
	line := append(slices.Clone(c.Topic), "--help")
	if len(c.Topic) == 1 && slices.Contains(helpPages, c.Topic[0]) {
		a.helpPage, line = c.Topic[0], []string{"--help"}
	}
	if _, err := parser.Parse(line); err != nil && !a.helped {
		return cli.UsageOf(err)
	}
	return nil
}

// printHelp prints the help that a command line asks for. The flags of every command have a page of their own.
func (a *app) printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	a.helped = true
	switch {
	case ctx.Selected() == nil && a.helpPage == "":
		return a.printEveryday(ctx.Model)
	case a.helpPage == "flags":
		ctx.Model.Children, ctx.Model.Help = nil, "These flags work with every command."
		return kong.DefaultHelpPrinter(options, ctx)
	}
	for _, f := range ctx.Model.Flags {
		f.Hidden = true
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	term.Printf(a.Stdout, "\nGlobal flags: `%s help flags`\n", ctx.Model.Name)
	return nil
}

// printEveryday prints the first page of the help.
func (a *app) printEveryday(model *kong.Application) error {
	page := fmt.Sprintf("Usage: %s <command> [flags]\n\n%s\n", model.Name, summary)
	for _, part := range everyday {
		page += "\n" + part.task + "\n"
		for _, name := range part.commands {
			i := slices.IndexFunc(model.Children, func(n *kong.Node) bool { return n.Name == name })
			page += fmt.Sprintf("  %-12s%s\n", name, model.Children[i].Help)
		}
	}
	to := a.Stdout
	if a.noCommand {
		to = a.Stderr
	}
	term.Block(to, page+fmt.Sprintf("\nOne command: `%[1]s help COMMAND`. Global flags: `%[1]s help flags`.\nAll commands and the exit codes: `%[1]s help more`.", model.Name))
	return nil
}
