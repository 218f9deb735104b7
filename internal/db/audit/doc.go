// Package audit checks a database from the file up, for those who trust nobody:
// the chain of the audit log, every checkpoint against the row of its save, every
// state against its hash, and the heads that a daemon has logged.
//
// It may import the root package, internal/db/blob, internal/db/ledger and
// internal/db/sqlite.
package audit
