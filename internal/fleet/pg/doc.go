// Package pg is the engine of a fleet: whatever speaks PostgreSQL's wire and replicates
// by itself. All SQL is in statements.go and schema.go. It keeps to what PostgreSQL 13,
// CockroachDB, YugabyteDB, Aurora and AlloyDB have in common; a test reads every
// statement and refuses the rest.
//
// A batch is one pipeline and one implicit transaction, so that a host that freezes
// holds no lock. A commit that comes with a warning about replication is not believed.
//
// This package may import internal/fleet; of others, jackc/pgx.
package pg
