// Package resume makes the plan of how to go on with a run: what to load, what
// has been done, what nobody knows the end of, and whether it is safe.
//
// [Make] is a ckpt.Resumer. It is pure: it follows from the facts alone, takes
// the time from them, and touches nothing but through Facts.Load. [Question]
// and [Reason] are the words of the prompt that a plan asks for. DESIGN.md in
// this folder has the decisions.
//
// This package may import the root package, the standard library and
// wI2L/jsondiff (what a new beginning would lose).
package resume
