package filescmd

// Command is the command files with its subcommands.
type Command struct {
	Snap    SnapCommand `cmd:"" help:"Save the files of a folder with a new checkpoint. Sends only what changed."`
	List    listCmd     `cmd:"" help:"List the files of a checkpoint."`
	Diff    diffCmd     `cmd:"" help:"Compare the files of two checkpoints, or of one checkpoint with the folder."`
	Restore restoreCmd  `cmd:"" help:"Restore the files of a checkpoint. Shows the plan; --yes carries it out."`
	Undo    undoCmd     `cmd:"" help:"Undo the last restore of a folder."`
}

// Help returns the additional text of `files --help`.
func (c *Command) Help() string {
	return "A checkpoint may name the files that a folder had. They are read by this command as you, never by the daemon. " +
		"docs/FILES.md says what is kept and what is not."
}
