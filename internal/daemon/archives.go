package daemon

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// archives moves old rows of the audit log into files when it is time. It also removes
// rows that are in an archive already but that an earlier call did not remove.
type archives struct {
	store interface {
		ArchiveOld(ctx context.Context, folder string, keep time.Duration) (*ckpt.AuditArchived, error)
	}
	folder string
	mode   fs.FileMode // of the folder, if it must be created
	keep   time.Duration
	log    *slog.Logger
}

// The pauses of archives. The first one waits until the start is over.
const (
	firstArchive = 2 * time.Minute
	archiveEvery = 6 * time.Hour
)

// set applies the settings.
func (a *archives) set(c *Config) {
	a.keep, a.folder, a.mode = time.Duration(c.AuditKeep), c.beside(c.AuditFolder, "audit"), c.folderMode()
}

// Run archives rows when it is time, until ctx ends. It logs errors and continues.
func (a *archives) Run(ctx context.Context) error {
	for pause := firstArchive; ; pause = archiveEvery {
		if periodic.Wait(ctx, pause) != nil {
			return nil
		}
		a.once(ctx)
	}
}

func (a *archives) once(ctx context.Context) {
	if a.keep > 0 {
		if err := os.MkdirAll(a.folder, a.mode); err != nil {
			a.log.Error("the audit log cannot be archived: its folder cannot be created", "folder", a.folder, "error", err)
			return
		}
	}
	done, err := a.store.ArchiveOld(ctx, a.folder, a.keep)
	switch {
	case err != nil && ctx.Err() == nil:
		a.log.Error("old rows of the audit log were not archived; the daemon tries again", "folder", a.folder, "error", err)
	case done != nil:
		a.log.Info("archived old rows of the audit log", "file", filepath.Join(a.folder, done.Name), "from", done.FromN,
			"to", done.ToN, "sha256", done.SHA256, "removed", done.Removed)
	}
}
