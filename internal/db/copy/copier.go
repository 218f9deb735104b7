package copy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Copier exports and imports.
type Copier struct {
	*driftlog.Drifts
	graphImported GraphImported
	filesImported FilesImported
}

// GraphImported notes a LangGraph checkpoint that an import brought in.
type GraphImported func(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, n int64, state []byte) error

// FilesImported refuses an import whose files take an agent over its limit.
type FilesImported func(tx *ledger.Tx, agent *ledger.AgentRow) error

// New makes a Copier.
func New(d *driftlog.Drifts, graph GraphImported, files FilesImported) *Copier {
	return &Copier{d, graph, files}
}

// asidePrefix begins the names of the temporary folders beside a database.
func asidePrefix(path string) string { return "." + filepath.Base(path) + "-aside-" }

// Sweep removes the temporary folders that a killed daemon has left. Only who holds the lock of the
// database may call it.
func (s *Copier) Sweep() error {
	folder := filepath.Dir(s.Opt.Path)
	list, err := os.ReadDir(folder)
	for _, file := range list {
		if strings.HasPrefix(file.Name(), asidePrefix(s.Opt.Path)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, file.Name())))
		}
	}
	return err
}

// aside names a temporary file in a folder of its own beside the database.
func (s *Copier) aside() (path string, drop func(), err error) {
	folder, err := os.MkdirTemp(filepath.Dir(s.Opt.Path), asidePrefix(s.Opt.Path))
	if err != nil {
		return "", nil, ckpt.Wrap(ckpt.CodeStorageFull, err, "exports and imports need a file beside the database, and it cannot be created")
	}
	return filepath.Join(folder, "copy.db"), func() { _ = os.RemoveAll(folder) }, nil
}
