// Package sqlite is the engine under the store: one SQLite file with its pools,
// the one writer with its group commit and fair queue, retries and result codes,
// the watch over the files, the upkeep of the write-ahead log, the reserve for a
// full disk, migration, backup and restore. It knows nothing of what the tables
// mean: the store gets its say through Hooks. DESIGN.md says how and why.
//
// Nothing in the process opens the database file except through SQLite: closing
// such a handle would drop SQLite's locks. Looking at the file is done by stat
// alone.
//
// It may import the root package, for errors, and internal/osfile.
package sqlite
