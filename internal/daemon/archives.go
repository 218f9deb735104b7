package daemon

import (
	"context"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// archives moves old rows of the audit log into files when it is time. It also removes
// rows that are in an archive already but that an earlier call did not remove.
type archives struct {
	store interface {
		ArchiveInto(folder string, mode fs.FileMode)
		ArchiveOld(ctx context.Context, keep time.Duration) (*ckpt.AuditArchived, error)
	}
	keep time.Duration
	log  *slog.Logger
}

// The pauses of archives. The first one waits until the start is over.
const (
	firstArchive = 2 * time.Minute
	archiveEvery = 6 * time.Hour
)

// set applies the settings.
func (a *archives) set(c *Config) {
	a.keep = time.Duration(c.AuditKeep)
	a.store.ArchiveInto(c.beside(c.AuditFolder, "audit"), c.folderMode())
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
	done, err := a.store.ArchiveOld(ctx, a.keep)
	switch {
	case err != nil && ctx.Err() == nil:
		a.log.Error("old rows of the audit log were not archived; the daemon tries again", "error", err)
	case done != nil:
		a.log.Info("archived old rows of the audit log", "file", filepath.Join(done.Folder, done.Name), "from", done.FromN,
			"to", done.ToN, "sha256", done.SHA256, "removed", done.Removed)
	}
}
