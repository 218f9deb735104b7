package db

import (
	"context"
	"os"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// ArchiveMinAge is the minimum age of an audit log row that is archived.
const ArchiveMinAge = ledger.ArchiveMinAge

// ArchiveAudit records that a file has the oldest rows of the audit log, and removes them from the
// database. Only an administrator may call it, because the log covers all users. The next rounds of
// maintenance remove rows for which there was no time.
func (s *Store) ArchiveAudit(ctx context.Context, sc ckpt.Scope, r ckpt.AuditArchive) (*ckpt.AuditArchived, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "archive_audit", "")
	err := s.mayArchive(sc)
	if err == nil {
		e.Owner = "" // the log belongs to no owner
		err = s.RecordArchive(ctx, e, r)
	}
	if err != nil {
		s.RefusedBefore(e, err)
		return nil, err
	}
	removed, err := s.DropArchived(ctx)
	if err != nil {
		return nil, err
	}
	return &ckpt.AuditArchived{AuditArchive: r, Removed: removed}, nil
}

func (s *Store) mayArchive(sc ckpt.Scope) error {
	if !sc.Caller.Admin || sc.Target != "" {
		return ckpt.Errorf(ckpt.CodeDenied, "only an administrator may archive the audit log: it covers every owner, so leave the owner out")
	}
	return nil
}

// unmadeKeep is how long an archive that is not complete is kept: another process may still work on
// it.
const unmadeKeep = 24 * time.Hour

// ArchiveOld archives the audit log's rows that are older than keep into a folder, as the daemon
// does on its own, and removes rows that an earlier call left. It returns nil if there is nothing
// to archive.
func (s *Store) ArchiveOld(ctx context.Context, folder string, keep time.Duration) (*ckpt.AuditArchived, error) {
	removed, err := s.DropArchived(ctx)
	if err != nil || keep == 0 {
		return nil, err
	}
	now := s.Opt.Now()
	if err := sqlite.SweepUnfinished(folder, now.Add(-unmadeKeep)); err != nil {
		s.Log.Warn("what a killed archiving left could not be removed", "error", err, "folder", folder)
	}
	a, err := audit.Archive(ctx, s.Opt.Path, folder, now, now.Add(-keep), nil)
	if err != nil || a == nil {
		return nil, err
	}
	e := ledger.AuditEntry{Who: ledger.Daemon, PID: os.Getpid(), Action: "archive_audit", Outcome: ledger.OutcomeDone}
	if err := s.RecordArchive(ctx, e, *a); err != nil {
		return nil, err
	}
	more, err := s.DropArchived(ctx)
	return &ckpt.AuditArchived{AuditArchive: *a, Removed: removed + more}, err
}
