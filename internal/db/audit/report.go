package audit

import (
	"context"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// Problem is one thing that is wrong with a database.
type Problem struct {
	Rule    string `json:"rule" db:"rule"`
	Subject string `json:"subject" db:"subject"`
	Detail  string `json:"detail" db:"detail"`
}

func (p Problem) String() string { return p.Rule + " " + p.Subject + ": " + p.Detail }

// VerifyReport says what was checked and which problems were found.
type VerifyReport struct {
	Path          string    `json:"path"`
	Checkpoints   int64     `json:"checkpoints"`
	StateBytes    int64     `json:"state_bytes"`
	Contents      int64     `json:"contents"` // contents of files
	Trees         int64     `json:"trees"`
	AuditRows     int64     `json:"audit_rows"`
	AuditHeadN    int64     `json:"audit_head_n"`             // the number of the last row
	AuditHead     string    `json:"audit_head"`               // the hash of the last row
	Heads         int64     `json:"heads_compared,omitempty"` // heads from the daemon's log
	Archives      int64     `json:"archives,omitempty"`       // archives that were checked too: see VerifyArchives
	ArchivedRows  int64     `json:"archived_rows,omitempty"`  // rows of the audit log in them
	HeadsArchived int64     `json:"heads_archived,omitempty"` // heads of archived rows: see VerifyArchives
	Erasures      int64     `json:"erasures_unfinished,omitempty"`
	Problems      []Problem `json:"problems"`
}

type verifier struct {
	rowsOnly bool // the caller checks the bytes of states
	db       *sqlx.DB
	report   *VerifyReport
	progress func(done, total int64)
	read     int64             // the last row of the audit log that was read
	changes  map[owned]changed // changes of checkpoints
	given    []given           // agents that got another owner, in the order of the log
	links    map[int64]string  // hashes of archived rows
	floor    int64             // the last archived row
	heads    map[int64]string  // heads that the daemon logged, by row, and that were not met yet
}

// owed counts the erasures that are not finished. They are no problem of the database: the daemon finishes them.
func (v *verifier) owed(ctx context.Context) error {
	return v.met(ctx, "scrub_owed", v.db.GetContext(ctx, &v.report.Erasures, `SELECT count(*) FROM scrub_owed`))
}

func (v *verifier) found(rule, subject, format string, args ...any) {
	v.report.Problems = append(v.report.Problems, Problem{rule, subject, fmt.Sprintf(format, args...)})
}

// met records an error of SQLite as a finding: a damaged file must not prevent the other checks.
func (v *verifier) met(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case sqlite.Classify(err) == sqlite.ClassTransient:
		return err
	}
	v.found("unreadable", what, "%v", err)
	return nil
}

// verifyAtOnce is how many states are read on one snapshot, so that a long check does not keep the
// write-ahead log of a busy daemon from starting over.
const verifyAtOnce = 256

// owned names a checkpoint. An id is unique for its owner only.
type owned struct{ owner, id string }

// given says that an agent got another owner.
type given struct {
	N     int64  `db:"n"`
	Agent string `db:"agent"`
	From  string `db:"from_owner"`
	To    string `db:"to_owner"`
}

// changed is what the newest rows of the audit log say about a checkpoint's labels and pin.
type changed struct {
	labels  string // their hash, recorded in row labelsN
	pinned  bool   // recorded in row pinnedN
	labelsN int64  // 0: no row
	pinnedN int64
}
