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
	NotEnded int64    `json:"runs_not_ended"`    // runs that had not ended in the backup
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
		var notEnded int64
		if !done.Undone {
			if notEnded, told = daemon.RunsNotEnded(ctx, config); told != nil {
				told = fmt.Errorf("the backup is in its place, but its runs cannot be counted: %w", told)
			}
		}
		told = errors.Join(told, c.tell(a, config.Database, done, notEnded))
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

// tell reports at the end what was kept and where, and which runs are not as they were.
func (c *restoreBackupCmd) tell(a *app, database string, done *daemon.Restored, notEnded int64) error {
	if a.JSON {
		return a.WriteJSON(restoredShape{database, c.Backup, done.Kept, done.Earlier, done.Undone, notEnded})
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
	if notEnded > 0 {
		term.Printf(a.Stdout, "%s  %s\n", a.Out.Yellow("look"), notEndedText(notEnded, done.Kept != ""))
	}
	return nil
}

// notEndedText warns of runs that may have done more than the backup knows.
func notEndedText(n int64, kept bool) string {
	they, their := "they", "their agents"
	if n == 1 {
		they, their = "it", "its agent"
	}
	text := term.Count(n, "run") + " had not ended in the backup. What " + they + " did since is "
	if kept {
		text += "only in the kept file, and resume does not know of it: look there"
	} else {
		text += "not here, and resume does not know of it: find out"
	}
	return text + " before you start " + their + "."
}
