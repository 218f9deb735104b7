// Package spans stores what is observed through OpenTelemetry: spans become steps and usage of runs
// without an owner.
//
// # From a span to a step
//
// Observe takes the spans of one request in one transaction (observe.go). The fingerprints for the
// drift detectors are made before that; in the mode hash, the text is dropped at that point
// (content.go). Children arrive before their parents, so the run of a span is known only later:
// until then, the span's row holds what is known of it. Settle takes the spans whose trace is
// complete or has waited long enough (settle.go), finds their runs (resolve.go), and makes steps of
// them in the order in which they ended (tell.go). A span's row stays as long as its run, so that
// no span is taken twice. endRuns ends runs that get no more spans (end.go).
//
// Data that only helps to find the right run and the right turn is kept only in memory (traces.go):
// a restart loses it, and then the run of a span is the run of its trace.
//
// It may import the root package, internal/db/driftlog, internal/db/ledger,
// internal/db/sqlite, internal/drift/observer, internal/jsontext and
// internal/otlp/observed.
package spans
