// Package sqlite is the engine under the store: one SQLite file with its pools, the one writer with
// its group commit and fair queue, retries and result codes, the watch over the files, the upkeep
// of the write-ahead log, the reserve for a full disk, migration, backup and restore. It does not
// know what the tables mean: the store takes part through Hooks. DESIGN.md says how and why.
//
// Nothing in the process opens the database file except through SQLite, because closing such a
// handle would drop SQLite's locks. Other code looks at the file only with stat.
//
// It may import the root package, for errors, and internal/osfile.
package sqlite
