// Package pgtest starts PostgreSQL for tests: each test gets a server of its own in a
// temporary folder. The server runs as another user if the test is root, and has a
// synchronous standby if the test asks for one. If PostgreSQL is not installed, the
// test is skipped.
//
// Only tests use it. This package may import internal/testenv, and jackc/pgx.
package pgtest
