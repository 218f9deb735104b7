// Package audit checks a database file without trusting any part of it: the chain of the audit log,
// every checkpoint against the row of its save, every state and content of a file against its hash,
// every tree against its id, and the heads that a daemon has logged.
//
// It may import the root package, internal/db/blob, internal/db/files,
// internal/db/ledger, internal/db/sqlite and internal/tree.
package audit
