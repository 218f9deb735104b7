package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Check returns what the engine is, and whether it is suitable.
func (e *Engine) Check(ctx context.Context) (*fleet.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := &fleet.Report{Engine: e.version, Profile: e.Profile(), Rights: []string{}, Problems: []string{}, Notes: []string{}}
	for _, look := range []func(context.Context, *fleet.Report) error{e.checkWriting, e.checkTables, e.checkReplication, e.checkBack, e.checkIsolation, e.checkClock} {
		if err := look(ctx, r); err != nil {
			return nil, told(err)
		}
	}
	return r, nil
}

func (e *Engine) checkWriting(ctx context.Context, r *fleet.Report) error {
	var only string
	err := e.conn.QueryRow(ctx, `SHOW transaction_read_only`).Scan(&only)
	if err == nil && only == "on" {
		r.Problems = append(r.Problems, "this server only reads: name the primary, or several servers with target_session_attrs=read-write")
	}
	return err
}

// checkTables checks the fleet's tables, and this role's rights to them.
func (e *Engine) checkTables(ctx context.Context, r *fleet.Report) error {
	meta, err := e.meta(ctx)
	if errors.Is(err, ErrSchema) {
		r.Problems = append(r.Problems, "the fleet's tables are not there: run `ckptsidecar fleet migrate` with a role that may make them")
		return nil
	}
	if errors.Is(err, ErrRights) || err != nil && meta == nil {
		r.Problems = append(r.Problems, fmt.Sprintf("the fleet's tables cannot be read: %v", err))
		return nil
	}
	r.Schema, _ = strconv.Atoi(meta["schema"])
	r.EngineID = meta["engine_id"]
	if why := fits(meta); why != "" {
		r.Problems = append(r.Problems, why)
	}
	if r.Profile == fleet.ProfileCockroach {
		return nil
	}
	for _, table := range tables {
		for _, right := range rightsTo(table) {
			var has bool
			if err := e.conn.QueryRow(ctx, `SELECT has_table_privilege($1, $2)`, table, right).Scan(&has); err != nil {
				return err
			}
			if !has {
				r.Rights = append(r.Rights, right+" on "+table)
			}
		}
	}
	if len(r.Rights) > 0 {
		r.Problems = append(r.Problems, "this role lacks rights that a daemon needs; docs/FLEET.md has the grants")
	}
	return nil
}

// rightsTo returns the rights to a table that a daemon needs.
func rightsTo(table string) []string {
	switch table {
	case "fleet_meta":
		return []string{"SELECT"}
	case "fleet_erasures", "fleet_erased", "fleet_confirmations":
		return []string{"SELECT", "INSERT"}
	case "fleet_hosts", "fleet_marks", "fleet_audit", "fleet_claims":
		return []string{"SELECT", "INSERT", "UPDATE"}
	}
	return []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
}

// fits returns why the tables do not fit this program, "" if they do.
func fits(meta map[string]string) string {
	schema, _ := strconv.Atoi(meta["schema"])
	least, _ := strconv.Atoi(meta["min_reader"])
	switch {
	case schema == 0:
		return "the fleet's tables are not complete: run `ckptsidecar fleet migrate` again"
	case least > SchemaVersion:
		return fmt.Sprintf("the fleet's tables have version %d and need a program that knows version %d; this one knows %d: upgrade ckptsidecar on this host",
			schema, least, SchemaVersion)
	case schema < SchemaVersion:
		return fmt.Sprintf("the fleet's tables have version %d, this program needs %d: run `ckptsidecar fleet migrate`", schema, SchemaVersion)
	}
	return ""
}

// checkReplication finds out whether a commit waits for another machine.
func (e *Engine) checkReplication(ctx context.Context, r *fleet.Report) error {
	switch r.Profile {
	case fleet.ProfileCockroach, fleet.ProfileYugabyte:
		r.Replicated, r.How = true, "it replicates by itself; how many copies there are is its own setting"
		return nil
	}
	var names, commit, fsync string
	for show, to := range map[string]*string{showStandbys: &names, `SHOW synchronous_commit`: &commit, `SHOW fsync`: &fsync} {
		if err := e.conn.QueryRow(ctx, show).Scan(to); err != nil {
			return err
		}
	}
	if fsync == "off" {
		r.Problems = append(r.Problems, "fsync is off: the engine forgets commits when its machine stops")
	}
	var standbys, seen, standing int // those that are connected, whose state this role may see, and that count
	if err := e.conn.QueryRow(ctx, `SELECT count(*), count(s.sync_state), count(u.sync_state) FROM pg_stat_replication s
		LEFT JOIN pg_stat_replication u ON u.pid = s.pid AND u.sync_state IN ('sync', 'quorum')`).Scan(&standbys, &seen, &standing); err != nil {
		return err
	}
	switch {
	case names == "":
		r.How = "synchronous_standby_names is empty, so a commit waits for no standby"
		r.Notes = append(r.Notes, "what is shipped is lost with the engine's machine: good enough to look at, not for durability: fleet")
	case commit == "off" || commit == "local":
		r.How = "synchronous_commit is " + commit + ", so a commit waits for no standby"
	case seen < standbys:
		r.Replicated, r.How = true, fmt.Sprintf("synchronous_standby_names is %s; connected standbys: %d", names, standbys)
		r.Notes = append(r.Notes, "this role may not see which standbys count: GRANT pg_monitor TO the role")
	case standing == 0:
		r.Replicated, r.How = true, "synchronous_standby_names is "+names+", and no standby that counts is connected now"
		r.Notes = append(r.Notes, "commits wait until a standby is back")
	default:
		r.Replicated, r.How = true, fmt.Sprintf("synchronous_standby_names is %s; %d standbys count now", names, standing)
	}
	return nil
}

// checkBack tells that the engine went back, until a person has accepted that.
func (e *Engine) checkBack(ctx context.Context, r *fleet.Report) error {
	if r.Schema == 0 || len(r.Rights) > 0 {
		return nil
	}
	hosts, err := e.Noticed(ctx)
	if err != nil || len(hosts) == 0 {
		return err
	}
	left, err := e.names(ctx, unheard)
	note := "the engine went back, as these hosts noticed: " + strings.Join(hosts, ", ") + "; no host claims by itself; " +
		"find out which copy of the engine was started"
	if len(left) > 0 {
		note += "; wait for these hosts, which have not registered since: " + strings.Join(left, ", ")
	}
	r.Notes = append(r.Notes, note+"; then run `ckptsidecar fleet check --accept`")
	return err
}

func (e *Engine) checkIsolation(ctx context.Context, r *fleet.Report) error {
	err := e.conn.QueryRow(ctx, `SHOW transaction_isolation`).Scan(&r.Isolation)
	if err == nil && r.Isolation == "read uncommitted" && r.Profile != fleet.ProfilePostgres {
		r.Problems = append(r.Problems, "the isolation is read uncommitted")
	}
	return err
}

// checkClock compares the clocks, for people only. Nothing depends on the result.
func (e *Engine) checkClock(ctx context.Context, r *fleet.Report) error {
	before := time.Now()
	var there time.Time
	if err := e.conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&there); err != nil {
		return err
	}
	here := before.Add(time.Since(before) / 2)
	r.ClockAhead = there.Sub(here).Round(time.Millisecond).Seconds()
	if r.ClockAhead > 5 || r.ClockAhead < -5 {
		r.Notes = append(r.Notes, fmt.Sprintf(
			"the engine's clock is %.0f seconds away from this machine's: nothing depends on it, but times in reports will look wrong", r.ClockAhead))
	}
	return nil
}

// Migrate makes the fleet's tables, or brings them up to date. It can be repeated.
func (e *Engine) Migrate(ctx context.Context, id string) (from int, err error) {
	meta, err := e.meta(ctx)
	if err != nil && !errors.Is(err, ErrSchema) {
		return 0, err
	}
	from, _ = strconv.Atoi(meta["schema"])
	if least, _ := strconv.Atoi(meta["min_reader"]); from > SchemaVersion || least > SchemaVersion {
		return from, fmt.Errorf("%w: they have version %d, and this program knows %d: upgrade ckptsidecar first", ErrSchema, from, SchemaVersion)
	}
	for _, statement := range slices.Concat(schema, views) {
		if _, err := e.conn.Exec(ctx, statement); err != nil {
			return from, told(err)
		}
	}
	if _, err := e.conn.Exec(ctx, newMeta, "engine_id", id); err != nil {
		return from, told(err)
	}
	for key, value := range map[string]int{"min_reader": minReader, "schema": SchemaVersion} {
		if _, err := e.conn.Exec(ctx, putMeta, key, strconv.Itoa(value)); err != nil {
			return from, told(err)
		}
	}
	return from, nil
}
