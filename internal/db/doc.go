// Package db is everything SQLite: opening and migrating the database, the one
// writer with its group commit, reads that check every hash, the audit log,
// verify and backup. DESIGN.md in this folder says how and why.
//
// Nothing in the process opens the database file except through SQLite:
// closing such a handle would drop SQLite's locks. Looking at the file is done
// by stat alone.
//
// It may import the root package, internal/delta, internal/jsontext, internal/osfile,
// internal/secrets and internal/wellformed.
package db
