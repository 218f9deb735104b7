package server

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// GraphStore is what the server needs of the database for LangGraph's
// checkpointers. Every method can be repeated: doing it twice does it once. What is
// not there, or somebody else's, is no error: there is nothing of it.
type GraphStore interface {
	GraphPut(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPut) (*ckpt.GraphSaved, error)
	GraphPutWrites(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPutWrites) (*ckpt.GraphWritten, error)
	GraphTuple(ctx context.Context, sc ckpt.Scope, r ckpt.GraphGet) (*ckpt.GraphTuple, error)
	GraphTuples(ctx context.Context, sc ckpt.Scope, q ckpt.GraphQuery) (*ckpt.GraphPage, error)
	GraphHistory(ctx context.Context, sc ckpt.Scope, q ckpt.GraphHistoryQuery) ([]ckpt.GraphHistory, error)
	GraphDeleteThread(ctx context.Context, sc ckpt.Scope, agent, thread string) (*ckpt.GraphRemoved, error)
	GraphDeleteRuns(ctx context.Context, sc ckpt.Scope, agent string, runIDs []string) (*ckpt.GraphRemoved, error)
	GraphPrune(ctx context.Context, sc ckpt.Scope, r ckpt.GraphPrune) (*ckpt.GraphRemoved, error)
	GraphCopyThread(ctx context.Context, sc ckpt.Scope, r ckpt.GraphCopy) (*ckpt.GraphCopied, error)
}
