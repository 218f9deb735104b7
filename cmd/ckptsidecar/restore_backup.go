package main

import (
	"context"
	"errors"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type restoreBackupCmd struct {
	Backup string `arg:"" help:"The backup, as backup or the daemon's schedule made it."`
	DB     string `name:"db" help:"The database to replace. Default: $$CKPTSIDECAR_DB, then the configured one." placeholder:"FILE"`
	System bool   `help:"Replace the system service's database."`
}

// Help returns the text that `restore-backup --help` adds.
func (c *restoreBackupCmd) Help() string {
	return `The daemon must be stopped: ckptsidecar service stop. The backup is verified first.
Nothing is deleted: what was there is kept beside it, under a name that is printed.
Where it is interrupted no daemon starts: run it again, with the same backup to finish it.
Where root restores into a folder of another user, all is done with that user's rights.`
}

type restoredShape struct {
	Database string   `json:"database"`
	Backup   string   `json:"backup"`
	Kept     string   `json:"kept,omitempty"`    // the database from before
	Earlier  []string `json:"earlier,omitempty"` // files that interrupted restores had set aside
	Undone   bool     `json:"undone,omitempty"`  // an interrupted restore was undone, and nothing was restored
}

func (c *restoreBackupCmd) Run(ctx context.Context, a *app) error {
	config, err := (&cli.SettingFlags{System: c.System, DB: c.DB}).Settings(a.App)
	if err != nil {
		return err
	}
	p := a.Progress("checking the backup", "")
	var told error
	err = daemon.RestoreBackup(ctx, c.Backup, config, programVersion(), p.Step, func(done *daemon.Restored) {
		p.Done()
		told = c.tell(a, config.Database, done)
	})
	p.Done()
	var damaged *daemon.DamagedError
	switch {
	case errors.As(err, &damaged):
		return &cli.ExitError{Code: cli.ExitDamaged, Message: err.Error()}
	case errors.Is(err, daemon.ErrRunning):
		return cli.StopFirst(err, config.Database)
	}
	return errors.Join(err, told)
}

// tell reports at the end what was kept and where.
func (c *restoreBackupCmd) tell(a *app, database string, done *daemon.Restored) error {
	if a.JSON {
		return a.WriteJSON(restoredShape{database, c.Backup, done.Kept, done.Earlier, done.Undone})
	}
	if done.Undone {
		term.Printf(a.Stdout, "%s  %s is what it was before the restore that was interrupted\n", a.Out.Green("restored"), database)
	} else {
		term.Printf(a.Stdout, "%s  %s is the backup %s now\n", a.Out.Green("restored"), database, c.Backup)
	}
	for _, earlier := range done.Earlier {
		term.Printf(a.Stdout, "an interrupted restore kept %s\n", earlier)
	}
	switch {
	case done.Kept != "":
		term.Printf(a.Stdout, "what was there is kept as %s; remove it when you are sure\n", done.Kept)
	case !done.Undone:
		term.Println(a.Stdout, "nothing was there before, so nothing is kept")
	}
	return nil
}
