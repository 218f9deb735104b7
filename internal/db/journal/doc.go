// Package journal reads what has been committed after a row of the audit log, as of one
// snapshot: the rows of the log, and each run that they name as it is then, in the form
// of an export. It only reads. The audit log is the outbox of a fleet; there is no other.
//
// A batch of a shipper under load has a save of each of some ten runs. So what is read of
// the runs of a batch is read with one statement for all of them: in SQLite a statement
// costs more than the row that it finds. Runs that are read as wholes are read one by one,
// because they may be large. What is made of an agent's row is kept, by all of that row.
//
// This package may import the root package, internal/fleet, internal/db/archive and
// internal/db/ledger; of others, jmoiron/sqlx.
package journal
