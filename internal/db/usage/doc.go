// Package usage counts what each owner has stored, and refuses what would bring
// one beyond his quota or his share. A Tally counts in one transaction. The Meter
// knows the sums and refuses. The DESIGN note says how and why.
//
// It may import the root package and internal/db/sqlite.
package usage
