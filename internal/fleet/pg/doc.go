// Package pg speaks to the engine of a fleet: any database that speaks PostgreSQL's
// wire protocol and replicates by itself. All SQL for it is in this package. It uses only what
// PostgreSQL 13, CockroachDB, YugabyteDB, Aurora and AlloyDB have in common; a test
// reads every statement and refuses the rest.
//
// A batch is one pipeline and one implicit transaction, so that a host that freezes
// holds no lock. If a commit comes with a warning about replication, it does not count
// as confirmed.
//
// This package may import internal/fleet; of others, jackc/pgx.
package pg
