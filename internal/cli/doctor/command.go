package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// Command checks the machine and says what to do.
type Command struct {
	cli.DatabaseFlag `embed:""`
}

// checks run in this order. A check returns findings, or none if it has nothing to report.
var checks = []struct {
	name string
	look func(context.Context, *patient) []finding
}{
	{"program", lookProgram},
	{"identity", lookIdentity},
	{"daemon", lookDaemon},
	{"databases", lookDatabases},
	{"service", lookService},
	{"hardening", lookHardening},
	{"endpoint", lookEndpoint},
	{"files", lookFiles},
	{"disk", lookDisk},
	{"space", lookSpace},
	{"owners", lookOwners},
	{"spool", lookSpool},
	{"hooks", lookHooks},
	{"clock", lookClock},
	{"journal", lookJournal},
	{"retention", lookRetention},
	{"backups", lookBackups},
	{"sqlite3", lookSQLite},
	{"fleet", lookFleet},
}

// Run exits with 1 if a check failed. A warning is only advice.
func (c *Command) Run(ctx context.Context, a *cli.App) error {
	var found []finding
	err := c.look(ctx, a, func(f finding) {
		found = append(found, f)
		if !a.JSON {
			findingText(a, f)
		}
	})
	if err != nil {
		return err
	}
	if a.JSON {
		if err := a.WriteJSON(found); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(found, func(f finding) bool { return f.Level == levelFail }) {
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	return nil
}

// look makes all checks, and reports each finding at once.
func (c *Command) look(ctx context.Context, a *cli.App, tell func(finding)) error {
	p := &patient{app: a}
	p.status, p.failed = a.Status(ctx)
	var err error
	if p.db, err = c.PathWith(p.status, a); err != nil {
		return err
	}
	for _, check := range checks {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, f := range check.look(ctx, p) {
			f.Check = check.name
			tell(f)
		}
	}
	return nil
}

// Look makes all checks for another command. level is ok, warn or fail.
func Look(ctx context.Context, a *cli.App, tell func(check, level, what, do string)) error {
	return new(Command).look(ctx, a, func(f finding) { tell(f.Check, string(f.Level), f.What, f.Do) })
}

func findingText(a *cli.App, f finding) {
	mark := map[level]string{levelOK: a.Out.Green("ok     "), levelWarn: a.Out.Yellow("warn   "), levelFail: a.Out.Red("FAIL   ")}[f.Level]
	what := f.What
	if f.skipped != "" {
		mark, what = a.Out.Dim("skipped"), f.skipped
	}
	a.Out.Hanging(a.Stdout, fmt.Sprintf("%s  %-10s ", mark, f.Check), term.Escape(what))
	if f.Do != "" {
		a.Out.Hanging(a.Stdout, fmt.Sprintf("%20s%s ", "", a.Out.Dim("→")), term.Escape(f.Do))
	}
}
