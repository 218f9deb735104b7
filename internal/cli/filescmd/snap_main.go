package filescmd

import (
	"context"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// snapGrammar is the part of the grammar that `files snap` needs: a hook waits
// for it, and the whole grammar takes longer to read than most folders.
type snapGrammar struct {
	cli.Flags
	SnapCommand
}

// HandlesSnap says that this is the call of `files snap`, and not for its help.
func HandlesSnap(args []string) bool {
	return len(args) > 2 && args[0] == "files" && args[1] == "snap" && !slices.ContainsFunc(args, func(arg string) bool { return arg == "-h" || arg == "--help" })
}

// SnapMain is the whole program as `files snap`.
func SnapMain(ctx context.Context, a *cli.App, args []string) int {
	cli.EndsSoon()
	var s snapGrammar
	parser, err := kong.New(&s, kong.Name("ckptsidecar files snap"), kong.Writers(a.Stdout, a.Stderr), kong.NoDefaultHelp())
	if err != nil {
		return a.Fail(err)
	}
	if _, err := parser.Parse(args); err != nil {
		return a.Fail(cli.UsageOf(err))
	}
	*a.Flags = s.Flags
	return a.Fail(s.SnapCommand.Run(ctx, a))
}
