package main

import (
	"context"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type auditCmd struct {
	List    auditListCmd    `cmd:"" help:"List rows of the audit log, newest first."`
	Check   auditCheckCmd   `cmd:"" help:"Check the hash chain of the audit log in the daemon."`
	Archive auditArchiveCmd `cmd:"" help:"Move old rows of the audit log into a file that can be verified by itself."`
}

type auditArchiveCmd struct {
	Before string `required:"" placeholder:"TIME" help:"Archive rows before this time: 90d, or 2026-03-01. The last 8 days stay."`
}

// Help returns the text that `audit archive --help` adds.
func (c *auditArchiveCmd) Help() string {
	return `The daemon makes the file in the folder of audit.folder: a database of SQLite with the same views.
Try sqlite3 FILE 'SELECT * FROM audit_log'. Only once the file has been verified and is on disk do its rows go from
the daemon's database. Rows stay that something there still refers to. Keep the file:
ckptsidecar verify --archives DIR checks the file with the rest.`
}

type auditArchiveShape struct {
	File string `json:"file"`
	*ckpt.AuditArchived
}

func (c *auditArchiveCmd) Run(ctx context.Context, a *app) error {
	before, err := instant("--before", c.Before, time.Now())
	if err != nil {
		return cli.Usagef("%v", err)
	}
	done, err := a.Client().ArchiveAudit(ctx, ckpt.ArchiveRequest{Before: before})
	if err != nil {
		return err
	}
	if done.ToN == 0 {
		if a.JSON {
			return a.WriteJSON(auditArchiveShape{})
		}
		term.Printf(a.Stdout, "no row of the audit log is from before %s: nothing to archive\n", term.Moment(before))
		return nil
	}
	file := filepath.Join(done.Folder, done.Name)
	if a.JSON {
		return a.WriteJSON(auditArchiveShape{file, done})
	}
	term.Printf(a.Stdout, "%s  rows %d to %d, %s, verified; %s went from the database\n", file, done.FromN, done.ToN,
		term.Bytes(done.Bytes), term.Count(done.Removed, "row"))
	return nil
}
