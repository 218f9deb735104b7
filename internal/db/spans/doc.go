// Package spans keeps what is observed through OpenTelemetry: spans become steps
// and usage of runs that nobody owns.
//
// # From a span to a step
//
// Observe takes the spans of one request in one transaction (observe.go). The
// prints for the drift detectors are made before, and in the mode hash the text is
// gone by then (content.go). Children arrive before their parents, so which run a
// span belongs to is known only later: until then its row says what is known of
// it. Settle takes those whose trace is complete or has waited long enough
// (settle.go), finds their runs (resolve.go), and makes steps of them in the order
// in which they ended (tell.go). A row stays behind for as long as its run, so
// that no span is taken twice. End ends runs of which nothing more comes (end.go).
//
// What only helps to find the right run and the right turn is in memory alone
// (traces.go): a restart loses it, and then a span's run is that of its trace.
//
// It may import the root package, internal/db/driftlog, internal/db/ledger,
// internal/db/sqlite, internal/drift/observer, internal/jsontext and
// internal/otlp/observed.
package spans
