// Package resume makes the plan of how to go on with a run: what to load, which steps
// are done, which steps and operations have an unknown outcome, and whether it is safe.
//
// [Make] is a [Resumer]. It is pure: its result depends only on the facts. It takes the
// time from them, and reads checkpoints only through Facts.Load. [Question] and
// [Reason] make the texts of the prompt that a plan asks for. DESIGN.md in this folder
// has the decisions.
//
// This package may import the root package, the standard library and wI2L/jsondiff (for
// what a new beginning would lose).
package resume
