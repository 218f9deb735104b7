// Package db is the store: what the product does with its tables, inside the
// transactions of the engine in db/sqlite. It holds agents, runs, checkpoints,
// steps, operations, events, prompts, the audit log, drift and LangGraph's
// threads, and reads check every hash. DESIGN.md in this folder says how and why.
//
// It may import the root package, internal/db/sqlite, internal/delta,
// internal/jsontext, internal/osfile, internal/secrets and internal/wellformed.
package db
