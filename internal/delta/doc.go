// Package delta finds what a state has in common with the state before it.
//
// Compare is the search: it describes a state as copies from the previous state and
// literals. Base.Encode turns that into pieces of immutable segments, as the database
// stores them. Wire turns the operations into the form in which a change is sent, and Apply makes a state
// from that form. DESIGN.md has the reasons.
//
// Everything here is pure. This package may import the standard library only.
package delta
