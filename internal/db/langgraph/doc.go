// Package langgraph stores LangGraph's threads: its checkpoints as states of runs, and the writes
// of its tasks beside them.
//
// It may import the root package, internal/db/blob, internal/db/ledger,
// internal/db/saves, internal/db/sqlite, internal/db/usage,
// internal/jsontext and internal/wellformed.
package langgraph
