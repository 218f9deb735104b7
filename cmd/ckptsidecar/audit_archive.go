package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type auditCmd struct {
	List    auditListCmd    `cmd:"" help:"List rows of the audit log, newest first."`
	Check   auditCheckCmd   `cmd:"" help:"Check the hash chain of the audit log in the daemon."`
	Archive auditArchiveCmd `cmd:"" help:"Move old rows of the audit log into a file that can be verified by itself."`
}

type auditArchiveCmd struct {
	Before           string `required:"" placeholder:"TIME" help:"Archive rows before this time: 90d, or 2026-03-01. The last 8 days stay."`
	To               string `required:"" placeholder:"DIR" help:"The folder for the file. It must exist."`
	cli.DatabaseFlag `embed:""`
}

// Help returns the text that `audit archive --help` adds.
func (c *auditArchiveCmd) Help() string {
	return `The file is a database of SQLite with the same views: sqlite3 FILE 'SELECT * FROM audit_log'.
Only once it has been verified and is on disk do its rows go from the daemon's database. Rows stay that
something there still refers to. Keep the file: ckptsidecar verify --archives DIR checks it with the rest.`
}

type auditArchiveShape struct {
	File string `json:"file"`
	*ckpt.AuditArchived
}

func (c *auditArchiveCmd) Run(ctx context.Context, a *app) error {
	path, err := c.Existing(ctx, a.App)
	if err != nil {
		return err
	}
	before, err := instant("--before", c.Before, time.Now())
	if err != nil {
		return cli.Usagef("%v", err)
	}
	status, err := a.Client().Status(ctx)
	if err != nil {
		return err
	}
	if status.Database.Path != path {
		return &cli.ExitError{Code: cli.ExitUsage,
			Message: fmt.Sprintf("the daemon serves %s, not %s: name its socket with --socket", status.Database.Path, path)}
	}
	p := a.Progress("checking the archive", "")
	archive, err := daemon.Archive(ctx, path, c.To, before.Time, p.Step)
	p.Done()
	if err != nil {
		return err
	}
	if archive == nil {
		if a.JSON {
			return a.WriteJSON(auditArchiveShape{})
		}
		term.Printf(a.Stdout, "no row of the audit log is from before %s: nothing to archive\n", term.Moment(before))
		return nil
	}
	file := filepath.Join(c.To, archive.Name)
	done, err := a.Client().ArchiveAudit(ctx, *archive)
	if err != nil {
		return fmt.Errorf("%s was written, but its rows are still in the database: try again: %w", file, err)
	}
	if a.JSON {
		return a.WriteJSON(auditArchiveShape{file, done})
	}
	term.Printf(a.Stdout, "%s  rows %d to %d, %s, verified; %s went from the database\n", file, done.FromN, done.ToN,
		term.Bytes(done.Bytes), term.Count(done.Removed, "row"))
	return nil
}
