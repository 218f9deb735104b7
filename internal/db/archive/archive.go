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
	graphs Graphs
	files  Files
}

// Graphs are the functions of LangGraph's threads that an import or export needs.
type Graphs struct {
	// Imported notes a LangGraph checkpoint that an import brought in.
	Imported func(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, n int64, state []byte) error
	// RunName is the name of the run of a thread and namespace.
	RunName func(ckpt.GraphThread) string
}

// New makes an Archive.
func New(d *driftlog.Drifts, graphs Graphs, files Files) *Archive { return &Archive{d, graphs, files} }

// Files are the functions for the files of checkpoints that an import needs.
type Files interface {
	// KeepContents stores contents that were already screened for secrets.
	KeepContents(ctx context.Context, sc ckpt.Scope, agent string, next func() (*ckpt.FileContent, error)) (*ckpt.ContentsStored, error)
	PutTree(ctx context.Context, sc ckpt.Scope, r ckpt.TreeRequest) (*ckpt.TreeStored, error)
	// NameImported lets an imported checkpoint name trees.
	NameImported(tx *ledger.Tx, agent *ledger.AgentRow, checkpoint string, trees []string) error
}
