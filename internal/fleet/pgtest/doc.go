// Package pgtest starts PostgreSQL for tests: a server of its own in a temporary
// folder, as another user where the test is root, with a synchronous standby where the
// test asks for one. Where PostgreSQL is not installed, the test skips.
//
// Tests alone use it. This package may import internal/testenv, and jackc/pgx.
package pgtest
