package db

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// ArchiveMinAge is the minimum age of an audit log row that is archived.
const ArchiveMinAge = ledger.ArchiveMinAge

// ArchiveInto sets the folder for archives of the audit log, and the mode with which it is made. Without it, that is the folder audit
// beside the database.
func (s *Store) ArchiveInto(folder string, mode fs.FileMode) { s.archives.Store(&place{folder, mode}) }

// place is a folder for files, and its mode if it must be made.
type place struct {
	folder string
	mode   fs.FileMode
}

// ArchiveAudit moves the rows of the audit log from before a time into a file, which it makes and checks itself. Only an
// administrator may call it, because the log covers all users. The next rounds of maintenance remove rows for which
// there was no time.
func (s *Store) ArchiveAudit(ctx context.Context, sc ckpt.Scope, r ckpt.ArchiveRequest) (*ckpt.AuditArchived, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "archive_audit", "")
	err := s.mayArchive(sc)
	var done *ckpt.AuditArchived
	if err == nil {
		e.Owner = "" // the log belongs to no owner
		done, err = s.archive(ctx, e, r.Before.Time)
	}
	if err != nil {
		s.RefusedBefore(e, err)
		return nil, err
	}
	return done, nil
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

// ArchiveOld archives the audit log's rows that are older than keep, as the daemon does on its own, and removes rows that an
// earlier call left. It returns nil if there is nothing to archive.
func (s *Store) ArchiveOld(ctx context.Context, keep time.Duration) (*ckpt.AuditArchived, error) {
	removed, err := s.DropArchived(ctx)
	if err != nil || keep == 0 {
		return nil, err
	}
	e := ledger.AuditEntry{Who: ledger.Daemon, PID: os.Getpid(), Action: "archive_audit", Outcome: ledger.OutcomeDone}
	done, err := s.archive(ctx, e, s.Opt.Now().Add(-keep))
	if err != nil || done.ToN == 0 {
		return nil, err
	}
	done.Removed += removed
	return done, nil
}

// archive makes a file of the rows from before a time, checks it, records it and removes the rows.
func (s *Store) archive(ctx context.Context, e ledger.AuditEntry, before time.Time) (*ckpt.AuditArchived, error) {
	at := s.archives.Load()
	if at == nil {
		at = &place{filepath.Join(filepath.Dir(s.Opt.Path), "audit"), 0o700}
	}
	s.archiving.Lock()
	defer s.archiving.Unlock()
	if err := os.MkdirAll(at.folder, at.mode); err != nil {
		return nil, fmt.Errorf("the folder for archives cannot be made: %w", err)
	}
	now := s.Opt.Now()
	if err := sqlite.SweepUnfinished(at.folder, now.Add(-unmadeKeep)); err != nil {
		s.Log.Warn("what a killed archiving left could not be removed", "error", err, "folder", at.folder)
	}
	a, err := audit.Archive(ctx, s.Opt.Path, at.folder, now, before, nil)
	if err != nil {
		return nil, err
	}
	done := &ckpt.AuditArchived{Folder: at.folder}
	if a == nil {
		return done, nil
	}
	if err := s.RecordArchive(ctx, e, *a); err != nil {
		return nil, err
	}
	done.AuditArchive = *a
	done.Removed, err = s.DropArchived(ctx)
	return done, err
}
