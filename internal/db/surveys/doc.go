// Package surveys answers the calls that look over many runs at once, for a page for
// operators: what needs a person, runs on one time axis, a run as its flight
// recorder, the findings of all runs. It only reads. Every answer is from one
// snapshot of the database.
//
// An answer costs what it shows, not what the database holds: each query has an
// index, and TestSurveysUseIndexes refuses a scan of a table that grows without end.
//
// This package may import the root package, internal/db/ledger, internal/retention
// and internal/survey; of others, jmoiron/sqlx.
package surveys
