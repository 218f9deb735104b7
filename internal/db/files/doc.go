// Package files keeps the files that checkpoints are saved with: contents, trees, and which
// checkpoints name them. The DESIGN note says how.
//
// It may import the root package, internal/db/blob, internal/db/driftlog,
// internal/db/ledger, internal/db/sqlite, internal/db/usage, internal/delta,
// internal/secrets and internal/tree.
package files
