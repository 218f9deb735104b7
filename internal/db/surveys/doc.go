// Package surveys answers the calls that look over many runs at once, for a page for operators:
// what needs a person, runs on one time axis, the flight recorder of a run, the findings of all
// runs. It only reads. Every answer comes from one snapshot of the database.
//
// The cost of an answer depends on what it shows, not on the size of the database: each query has
// an index, and TestSurveysUseIndexes refuses a scan of a table that grows without bound.
//
// This package may import the root package, internal/db/ledger, internal/retention
// and internal/survey; of others, jmoiron/sqlx.
package surveys
