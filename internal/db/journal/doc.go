// Package journal reads what has been committed after a row of the audit log, from one snapshot:
// the rows of the log, and each run that they name in its current form, as lines of an export. It
// only reads. The audit log is the outbox of a fleet; there is no other outbox.
//
// A batch of a shipper under load has one save of each of about ten runs. So one statement reads
// the data of all runs of a batch: in SQLite a statement costs more than the row that it finds.
// Runs that must be read whole are read one by one, because they may be large. The line of an agent
// is kept, with the whole row that it was made from as its key.
//
// This package may import the root package, internal/fleet, internal/db/copy and
// internal/db/ledger; of others, jmoiron/sqlx.
package journal
