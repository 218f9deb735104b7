package archive

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Archive exports and imports.
type Archive struct {
	*driftlog.Drifts
	graphImported GraphImported
	files         Files
}

// GraphImported notes a LangGraph checkpoint that an import brought in.
type GraphImported func(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, n int64, state []byte) error

// New makes an Archive.
func New(d *driftlog.Drifts, graph GraphImported, files Files) *Archive {
	return &Archive{d, graph, files}
}

// Files are the functions for the files of checkpoints that an import needs.
type Files interface {
	// KeepContents stores contents that were already screened for secrets.
	KeepContents(ctx context.Context, sc ckpt.Scope, agent string, next func() (*ckpt.FileContent, error)) (*ckpt.ContentsStored, error)
	PutTree(ctx context.Context, sc ckpt.Scope, r ckpt.TreeRequest) (*ckpt.TreeStored, error)
	// NameImported lets an imported checkpoint name trees.
	NameImported(tx *ledger.Tx, agent *ledger.AgentRow, checkpoint string, trees []string) error
}
