// Package saves takes checkpoints. It also changes the labels and the pins of existing checkpoints.
//
// It may import the root package, internal/db/blob, internal/db/ledger,
// internal/db/driftlog, internal/db/sqlite, internal/db/usage, internal/secrets
// and internal/wellformed.
package saves
