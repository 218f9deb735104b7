// Package retention decides what of a run stays and why, and removes the rest.
//
// The decisions are pure: [Plan] judges the checkpoints of a run by its policy, [Over]
// says when an ended run is removed as a whole, and [Budget] says what to remove first
// if there is too much. The store calls them inside its write transaction, on what is
// there at that moment, so that a save, a pin or a restore cannot race with a removal.
//
// [Guard] watches the clock, because a wrong clock must not make anything old. [Worker]
// goes through the database at intervals. DESIGN.md in this folder has the decisions.
//
// This package may import the root package, internal/periodic and the standard library.
package retention
