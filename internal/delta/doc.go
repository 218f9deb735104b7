// Package delta finds what a state has in common with the one before.
//
// Compare is the search: it describes a state as copies from the one before
// and literals. Base.Encode turns that into pieces of immutable segments, as
// the database stores them; Diff and Apply turn it into the form in which a
// change travels, and back. DESIGN.md says why it is done so.
//
// Everything here is pure. This package may import the standard library only.
package delta
