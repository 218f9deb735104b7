// Package retention decides what of a run stays and why, and applies it.
//
// The decisions are pure: [Plan] goes through the checkpoints of a run by its
// policy, [Over] says when an ended run goes altogether, and [Budget] says what
// goes first when there is too much. Whoever stores checkpoints calls them
// inside its write transaction, on what is there at that moment, so that a save,
// a pin or a restore cannot race with a removal.
//
// [Guard] watches the clock, because a wrong clock must not make anything old.
// [Worker] goes over the database now and then. DESIGN.md in this folder has
// the decisions.
//
// This package may import the root package, internal/periodic and the standard library.
package retention
