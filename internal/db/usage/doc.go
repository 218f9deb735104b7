// Package usage counts what each owner has stored, and refuses operations that would exceed the
// owner's quota or share. A Tally counts in one transaction. The Meter knows the sums and refuses.
// The DESIGN note says how and why.
//
// It may import the root package, internal/db/sqlite and, for its words, internal/drift/phrase.
package usage
