// Package journal reads what has been committed after a row of the audit log, as of one
// snapshot: the rows of the log, and each run that they name as it is then, in the form
// of an export. It only reads. The audit log is the outbox of a fleet; there is no other.
//
// This package may import the root package, internal/fleet, internal/retention,
// internal/db/archive, internal/db/blob and internal/db/ledger; of others, jmoiron/sqlx.
package journal
