package client

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// GraphPut puts a checkpoint of LangGraph on disk, or returns the channels whose values must be
// sent with it.
func (w *Wire) GraphPut(ctx context.Context, r *ckpt.GraphPut) (*ckpt.GraphSaved, error) {
	return w.client.GraphPut(ctx, r)
}

// GraphPutWrites puts the writes of one task on disk.
func (w *Wire) GraphPutWrites(ctx context.Context, r *ckpt.GraphPutWrites) (*ckpt.GraphWritten, error) {
	return w.client.GraphPutWrites(ctx, r)
}

// GraphTuples lists one page of checkpoints, newest first.
func (w *Wire) GraphTuples(ctx context.Context, q ckpt.GraphQuery) (*ckpt.GraphPage, error) {
	return w.client.GraphTuples(ctx, q)
}

// GraphTuple reads one checkpoint, or the newest if none is named. It returns nil if there is none.
// Values whose tags the request has are not sent again.
func (w *Wire) GraphTuple(ctx context.Context, r ckpt.GraphGet) (*ckpt.GraphTuple, error) {
	return w.client.GraphTuple(ctx, r)
}

// GraphHistory reads the writes that make up delta channels.
func (w *Wire) GraphHistory(ctx context.Context, q ckpt.GraphHistoryQuery) ([]ckpt.GraphHistory, error) {
	return w.client.GraphHistory(ctx, q)
}

// GraphDeleteThread removes all namespaces of a thread, for good.
func (w *Wire) GraphDeleteThread(ctx context.Context, agent, thread string) (*ckpt.GraphRemoved, error) {
	return w.client.GraphDeleteThread(ctx, agent, thread)
}

// GraphDeleteRuns removes the checkpoints whose metadata has one of these run_ids.
func (w *Wire) GraphDeleteRuns(ctx context.Context, agent string, runIDs []string) (*ckpt.GraphRemoved, error) {
	return w.client.GraphDeleteRuns(ctx, agent, runIDs)
}

// GraphCopyThread copies a thread.
func (w *Wire) GraphCopyThread(ctx context.Context, r ckpt.GraphCopy) (*ckpt.GraphCopied, error) {
	return w.client.GraphCopyThread(ctx, r)
}

// GraphPrune shortens threads.
func (w *Wire) GraphPrune(ctx context.Context, r ckpt.GraphPrune) (*ckpt.GraphRemoved, error) {
	return w.client.GraphPrune(ctx, r)
}
