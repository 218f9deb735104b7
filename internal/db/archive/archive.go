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

// Graphs are what LangGraph's threads need to be told of.
type Graphs struct {
	// Imported notes a checkpoint of LangGraph that came by an import.
	Imported func(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, n int64, state []byte) error
	// RunName is the name of the run that a thread and namespace have.
	RunName func(ckpt.GraphThread) string
}

// New exports and imports.
func New(d *driftlog.Drifts, graphs Graphs, files Files) *Archive { return &Archive{d, graphs, files} }

// Files are what the files of checkpoints need to be told of.
type Files interface {
	// KeepContents stores contents that were looked at for secrets before.
	KeepContents(ctx context.Context, sc ckpt.Scope, agent string, next func() (*ckpt.FileContent, error)) (*ckpt.ContentsStored, error)
	PutTree(ctx context.Context, sc ckpt.Scope, r ckpt.TreeRequest) (*ckpt.TreeStored, error)
	// NameImported lets a checkpoint that was imported name trees.
	NameImported(tx *ledger.Tx, agent *ledger.AgentRow, checkpoint string, trees []string) error
}
