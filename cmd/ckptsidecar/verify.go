package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type verifyCmd struct {
	AgainstLog       string `name:"against-log" placeholder:"HEAD" help:"${against_log}"`
	Archives         string `placeholder:"DIR" help:"Also check the archives of the audit log in this folder."`
	cli.DatabaseFlag `embed:""`
}

// Help returns the text that `verify --help` adds.
func (c *verifyCmd) Help() string {
	return `The daemon logs the head of the audit log at its start and stop, after each backup and every hour.
Whoever changes the database cannot change what was logged elsewhere:
  journalctl -u ckptsidecar -g 'audit head' | ckptsidecar verify --against-log -`
}

// heads returns the heads that --against-log names, nil if it names none.
func (c *verifyCmd) heads(a *app) (heads []daemon.Head, err error) {
	if c.AgainstLog == "" {
		return nil, nil
	}
	if head, ok := daemon.ParseHead(c.AgainstLog); ok {
		return []daemon.Head{head}, nil
	}
	if c.AgainstLog == "-" {
		heads, err = daemon.ReadHeads(a.Stdin)
	} else {
		f, err := os.Open(c.AgainstLog)
		if err != nil {
			return nil, &cli.ExitError{Code: cli.ExitUsage, Message: fmt.Sprintf("--against-log takes NUMBER:HASH, a file, or -: %v", err)}
		}
		defer f.Close()
		heads, err = daemon.ReadHeads(f)
		if err != nil {
			return nil, err
		}
	}
	if err == nil && len(heads) == 0 {
		err = &cli.ExitError{Code: cli.ExitUsage,
			Message: "--against-log has no line \"audit head\" of the daemon's log: nothing was compared; give the daemon's log"}
	}
	return heads, err
}

func (c *verifyCmd) Run(ctx context.Context, a *app) error {
	path, err := c.Existing(ctx, a.App)
	if err != nil {
		return err
	}
	heads, err := c.heads(a)
	if err != nil {
		return err
	}
	p := a.Progress("verifying", "")
	report, err := daemon.VerifyAgainst(ctx, path, heads, p.Step)
	p.Done()
	if err != nil {
		return err
	}
	if c.Archives != "" {
		archives, err := daemon.VerifyArchives(ctx, path, c.Archives, heads, nil)
		if err != nil {
			return err
		}
		addArchives(report, archives)
	}
	tellDamage(ctx, a, report)
	return verifyText(a, report)
}

// addArchives adds the results of the archives to the report of the database.
func addArchives(r *daemon.VerifyReport, archives []*daemon.VerifyReport) {
	r.Archives = int64(len(archives))
	r.HeadsArchived = 0 // the check of each archive has looked for them
	for _, archive := range archives {
		r.ArchivedRows += archive.AuditRows
		for _, problem := range archive.Problems {
			problem.Subject = filepath.Base(archive.Path) + ": " + problem.Subject
			r.Problems = append(r.Problems, problem)
		}
	}
}

// damageTold is the maximum number of damaged checkpoints that the daemon is told about.
const damageTold = 100

// tellDamage makes the running daemon of this database read the damaged checkpoints, so that it
// makes a finding of each. It ignores the daemon's answers.
func tellDamage(ctx context.Context, a *app, r *daemon.VerifyReport) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, told := a.Client(), 0
	for _, problem := range r.Problems {
		if problem.Rule != "damaged" || told == damageTold {
			continue
		}
		if told == 0 {
			if s, err := client.Status(ctx); err != nil || s.Database.Path != r.Path {
				return
			}
		}
		told++
		_, _ = client.Checkpoint(ctx, problem.Subject, true)
	}
}

// verifyText prints each problem in one line.
func verifyText(a *app, r *daemon.VerifyReport) error {
	if a.JSON {
		if err := a.WriteJSON(r); err != nil {
			return err
		}
	} else {
		for _, problem := range r.Problems {
			term.Println(a.Stdout, a.Out.Red(problem.String()))
		}
	}
	if n := len(r.Problems); n > 0 {
		return &cli.ExitError{Code: cli.ExitDamaged,
			Message: fmt.Sprintf("%s has %s: keep the file unchanged, and serve a backup; undamaged checkpoints can still be read and exported",
				r.Path, term.Count(n, "problem"))}
	}
	if !a.JSON {
		files := ""
		if r.Contents > 0 {
			files = fmt.Sprintf(", %s and %s of files", term.Count(r.Contents, "content"), term.Count(r.Trees, "tree"))
		}
		term.Printf(a.Stdout, "%s  %s: %s (%s)%s and %s, head %d:%s%s\n", a.Out.Green("sound"), r.Path,
			term.Count(r.Checkpoints, "checkpoint"), term.Bytes(r.StateBytes), files, term.Count(r.AuditRows, "audit row"),
			r.AuditHeadN, r.AuditHead, comparedText(r))
	}
	return nil
}

// comparedText says how much of the daemon's log was compared.
func comparedText(r *daemon.VerifyReport) string {
	text := ""
	if r.Archives > 0 {
		text = "; " + term.Count(r.Archives, "archive") + " with " + term.Count(r.ArchivedRows, "row")
	}
	if r.Heads > 0 {
		text += ", as in " + term.Count(r.Heads, "line") + " of the daemon's log"
	}
	if r.Erasures > 0 {
		text += "; " + term.Count(r.Erasures, "erasure") + " not finished, so traces may be in the file: start the daemon, which finishes the rest"
	}
	if r.HeadsArchived > 0 {
		text += fmt.Sprintf(" (%d of them are of rows in archives: check these too, with --archives)", r.HeadsArchived)
	}
	return text
}

type backupCmd struct {
	Out              string `arg:"" help:"The file to write. It must not exist."`
	cli.DatabaseFlag `embed:""`
}

type backupShape struct {
	Database string `json:"database"`
	Backup   string `json:"backup"`
	Bytes    int64  `json:"bytes"`
}

func (c *backupCmd) Run(ctx context.Context, a *app) error {
	path, err := c.Existing(ctx, a.App)
	if err != nil {
		return err
	}
	p := a.Progress("checking the copy", "")
	err = daemon.Backup(ctx, path, c.Out, p.Step)
	p.Done()
	if err != nil {
		return err
	}
	info, err := os.Stat(c.Out)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(backupShape{path, c.Out, info.Size()})
	}
	term.Printf(a.Stdout, "%s  %s of %s, verified: restore-backup puts it back\n", c.Out, term.Bytes(info.Size()), path)
	return nil
}
