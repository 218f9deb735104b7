package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type restoreBackupCmd struct {
	Backup string `arg:"" help:"The backup, as backup or the daemon's schedule made it."`
	DB     string `name:"db" help:"The database to replace. Default: $$CKPTSIDECAR_DB, then the configured one." placeholder:"FILE"`
	System bool   `help:"Replace the system service's database."`
}

// Help is what `restore-backup --help` adds.
func (c *restoreBackupCmd) Help() string {
	return `The daemon must be stopped: ckptsidecar service stop. The backup is verified first.
Nothing is deleted: what was there is kept beside it, under a name that is printed.`
}

type restoredShape struct {
	Database string `json:"database"`
	Backup   string `json:"backup"`
	Kept     string `json:"kept,omitempty"` // what was there before
}

func (c *restoreBackupCmd) Run(ctx context.Context, a *app) error {
	config, err := (&serveCmd{System: c.System, DB: c.DB}).settings(a)
	if err != nil {
		return err
	}
	p := a.progress("checking the backup")
	kept, err := daemon.RestoreBackup(ctx, c.Backup, config, programVersion(), p.Step)
	p.Done()
	var damaged *daemon.DamagedError
	switch {
	case errors.As(err, &damaged):
		return &cli.ExitError{Code: cli.ExitDamaged, Message: err.Error()}
	case errors.Is(err, daemon.ErrRunning):
		return &cli.ExitError{Code: cli.ExitConflict, Message: fmt.Sprintf("a daemon has %s: stop it first (ckptsidecar service stop)", config.Database)}
	case err != nil:
		return err
	case a.cli.JSON:
		return term.WriteJSON(a.stdout, restoredShape{config.Database, c.Backup, kept})
	}
	fmt.Fprintf(a.stdout, "%s  %s is the backup %s now\n", a.out.Green("restored"), config.Database, c.Backup)
	if kept != "" {
		fmt.Fprintf(a.stdout, "what was there is kept as %s; remove it when you are sure\n", kept)
	}
	return nil
}
