package db

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// These functions give tests access to the inside of the package.

// Write puts an operation of the test through the writer. apply gets a function that changes the database in the
// transaction of the operation.
func (s *Store) Write(owner string, size int64, apply func(exec func(query string, args ...any) error) error) error {
	return s.Submit(&ledger.Op{Owner: owner, Size: size, Entry: ledger.AuditEntry{Who: owner, Action: "test", Owner: owner}, Do: func(tx *ledger.Tx) error {
		return apply(func(query string, args ...any) error { return forge(tx, query, args...) })
	}})
}

// forge is exec past the guards of checkpoints. A test uses it to damage rows that nothing may rewrite, or in place
// of a part of the program that it leaves out.
func forge(tx *ledger.Tx, query string, args ...any) error {
	const guard = "checkpoints_are_never_changed"
	if !strings.HasPrefix(query, "UPDATE checkpoints ") {
		return tx.Exec(query, args...)
	}
	if err := tx.Exec(`DROP TRIGGER ` + guard); err != nil {
		return err
	}
	if err := tx.Exec(query, args...); err != nil {
		return err
	}
	return tx.Exec(ledger.Guards()[guard])
}

// Waiting returns the number of operations in the writer's queue.
func (s *Store) Waiting() int { return s.Engine.Waiting() }

// CheckFiles runs the check that maintenance makes beside the writer.
func (s *Store) CheckFiles() error { return s.Engine.CheckFiles() }

// LockedFor returns how long the writer has been kept from its lock.
func (s *Store) LockedFor() time.Duration { return s.Engine.LockedFor() }

// CopyWAL makes one background copy of the write-ahead log.
func (s *Store) CopyWAL() { s.Engine.CopyLog(context.Background()) }

// EmptyWAL empties the write-ahead log as erase does.
func (s *Store) EmptyWAL() error { return s.Engine.EmptyLog(context.Background()) }

// PendingWAL returns how many bytes wait in the write-ahead log.
func (s *Store) PendingWAL() int64 { return s.Engine.LogStatus().Pending }

// Tick does one round of maintenance at a time.
func (s *Store) Tick(now time.Time) { s.Engine.Ticker()(context.Background(), now) }

// Ticker returns a Tick for several rounds that share their memory.
func (s *Store) Ticker() func(now time.Time) {
	tick := s.Engine.Ticker()
	return func(now time.Time) { tick(context.Background(), now) }
}

// SetWALTarget makes the log wrap after fewer bytes, until the test ends.
func (s *Store) SetWALTarget(bytes int64) { s.Engine.SetLogTarget(bytes) }

// CrashWriter does what a faulty operation would do: it panics in the writer.
func (s *Store) CrashWriter(message string) error {
	return s.Submit(&ledger.Op{Owner: "uid:1", Do: func(*ledger.Tx) error { panic(message) }})
}

// MarkFailed leaves the marker of a fault, as a fail-stop does.
func MarkFailed(path string) error { return os.WriteFile(path+".failed", []byte(`{}`), 0o600) }

// MaxBatch is the maximum number of operations in one transaction.
const MaxBatch = sqlite.MaxBatch

// ExecForTest changes the database in a transaction of the writer.
func (s *Store) ExecForTest(query string, args ...any) error {
	return s.Submit(&ledger.Op{Owner: "test", Do: func(tx *ledger.Tx) error { return forge(tx, query, args...) }})
}

// ForgetTicks makes the next TickDrift check every run again.
func (s *Store) ForgetTicks() { clear(s.Ticked) }

// Doubts returns how often the states in memory were doubted.
func (s *Store) Doubts() int64 { return s.States.Doubts.Load() }

// Unguarded returns a script that runs statements past the guards of the schema and leaves the guards as they were,
// like an attacker who knows them.
func Unguarded(statements string) string {
	var drop, again strings.Builder
	for _, name := range slices.Sorted(maps.Keys(ledger.Guards())) {
		drop.WriteString("DROP TRIGGER IF EXISTS " + name + ";\n")
		again.WriteString(ledger.Guards()[name])
	}
	return drop.String() + strings.TrimSuffix(strings.TrimSpace(statements), ";") + ";\n" + again.String()
}

// Used returns what is counted for an owner: in all tables except the audit log, and in the audit log.
func (s *Store) Used(owner string) (rows, log int64) {
	return s.Usage.Used(owner)
}

// StoredBy measures what an owner has in all tables except the audit log.
func (s *Store) StoredBy(owner string) (int64, error) {
	return usage.StoredBy(context.Background(), s.RO, owner)
}

// CountAnew counts what an owner has, even if the last count is recent, so that a refusal is judged by it.
func (s *Store) CountAnew(owner string) error { return s.Usage.Recount(context.Background(), owner) }

// SetRoom sets how much room is left for all owners, on a volume of a size.
func (s *Store) SetRoom(left, total int64) { s.Usage.SetRoom(left, total) }

// FillAndFree releases the reserve and makes it again, as on a full disk on which deletes free a little.
func (s *Store) FillAndFree() error { return s.Engine.RemakeReserve() }

// StaleRun says of a run in the run cache how it differs from the run on disk, "" for none that differs.
func (s *Store) StaleRun() (stale string, err error) {
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		for _, c := range s.RunCache {
			run, agent, err := s.RunWithAgent(tx, c.Run.ID)
			if err != nil {
				return err
			}
			if run == nil {
				stale = c.Run.Name + " is gone"
				continue
			}
			is := ledger.CachedRun{Run: *run}
			needs, err := tx.NeedsOf(run)
			if err != nil {
				return err
			}
			is.Needed = needs.By
			if is.Rows, err = tx.PushableRows(run, agent.Settings.RoutineKeep); err != nil {
				return err
			}
			if _, err := tx.Get(&is.Graph, `SELECT EXISTS (SELECT 1 FROM graph_threads WHERE run_id = ?)`, run.ID); err != nil {
				return err
			}
			if _, err := tx.Get(&is.HeadN, `SELECT n FROM checkpoints WHERE id = ? AND run_id = ?`, run.Head, run.ID); err != nil {
				return err
			}
			if got, want := cachedText(c), cachedText(&is); got != want {
				stale = fmt.Sprintf("%s is cached as\n%s\nand is\n%s", run.Name, got, want)
			}
		}
		return nil
	}})
	return stale, err
}

// cachedText is what a save reads of a run in the run cache.
func cachedText(c *ledger.CachedRun) string {
	r := c.Run
	r.UpdatedAt, r.HeartbeatAt, r.Progress, r.ProgressAt, r.LastEvent = ckpt.Time{}, ckpt.Time{}, nil, ckpt.Time{}, 0
	text := fmt.Sprintf("%+v needed %v graph %v head %d", r, c.Needed, c.Graph, c.HeadN)
	for _, row := range c.Rows {
		row.Beside, row.CreatedAt = 0, ledger.Lenient[ckpt.Time]{Value: row.CreatedAt.Value}
		if row.StateOf != nil {
			row.StateOf = nil
		}
		text += fmt.Sprintf("\n%+v", row)
	}
	return text
}
