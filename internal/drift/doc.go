// Package drift finds agents that go in circles, make no progress, slow down,
// overspend, or lose their state. It decides; it stores nothing and does nothing.
//
// [New] gives the watch that the store uses. The fingerprint (print) of a step
// or a state is costly, and is made outside the writer: hashes of the call and
// of its normalized result, the schema, rules of the user. Watching a run is
// cheap, and runs inside the writer: each detector looks at the newest steps,
// and keeps nothing that grows. The stored fingerprints of a run rebuild its
// watch.
//
// Schemas and rules come from users. Libraries read them. The packages schema
// and rule evaluate them, and pay for every operation before it is done, so that
// none can hang, grow or reach anything. DESIGN.md in this folder has the
// decisions. docs/DRIFT.md has what the detectors find and cost, measured.
//
// This package may import the root package, internal/jsontext, and the packages
// below internal/drift.
package drift
