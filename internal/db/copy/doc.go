// Package copy copies the rows of agents: to an export, which is a SQLite file of the same schema,
// from an export into a database, and as lines of JSON for a fleet and for files of other programs.
// One table says for each table of the schema how its rows hang on an agent and a run, and which
// numbers are made anew: docs/adr/0052-an-export-is-a-database.md.
//
// It may import the root package, internal/db/audit, internal/db/blob, internal/db/driftlog,
// internal/db/files, internal/db/ledger, internal/db/sqlite, internal/delta, internal/jsontext,
// internal/liveness, internal/tree and internal/wellformed.
package copy
