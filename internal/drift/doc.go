// Package drift finds agents that go in circles, make no progress, slow down, overspend,
// or lose their state. It only decides. It stores nothing and has no other effects.
//
// [New] returns the watch that the store uses. It is costly to make the fingerprint
// (print) of a step or a state: hashes of the call and of its normalized result, the
// schema, rules of the user. Therefore this is done outside the writer. It is cheap to
// watch a run, and the writer does it: each detector looks at the newest steps, and keeps
// nothing that grows. The stored fingerprints of a run are enough to rebuild its watch.
//
// Schemas and rules come from users. Libraries parse them. The packages schema and rule
// evaluate them, and pay for every operation before it is done, so that none can hang,
// grow or reach anything. DESIGN.md in this folder has the decisions. docs/DRIFT.md has
// measurements of what the detectors find and cost.
//
// This package may import the root package, internal/jsontext, and the packages
// below internal/drift.
package drift
