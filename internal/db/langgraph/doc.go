// Package langgraph keeps LangGraph's threads: its checkpoints as states of runs,
// and what its tasks have written beside them.
//
// It may import the root package, internal/db/blob, internal/db/ledger,
// internal/db/saves, internal/db/sqlite, internal/db/usage,
// internal/jsontext and internal/wellformed.
package langgraph
