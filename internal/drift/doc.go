// Package drift finds agents that go in circles, make no progress, slow down,
// overspend, or lose their state. It decides; it stores nothing and does nothing.
//
// [New] gives the watch that the store uses. Making the print of a step or a
// state is costly and runs outside the writer: hashes of the call and of what
// normalise.Text leaves of its result, the schema, rules of the user's own. Watching
// a run is cheap and runs inside it: every detector looks at the newest steps,
// in one file each, and keeps nothing that grows. What is stored of a run
// rebuilds its watch.
//
// Schemas and rules come from users. They are read by libraries and worked out
// here, by code that pays for every operation before it is done, so that none
// can hang, grow or reach anything. DESIGN.md in this folder has the decisions,
// docs/DRIFT.md what the detectors find and cost, measured.
//
// This package may import the root package, internal/jsontext, and the packages
// below internal/drift.
package drift
