// Package driftlog watches over runs inside the store's transactions: it shows
// each step, state and heartbeat to the detectors, keeps what they find, and does
// what follows from it.
//
// It may import the root package, internal/db/blob, internal/db/ledger,
// internal/db/sqlite, internal/drift/observer, internal/jsontext, internal/secrets,
// internal/survey and internal/wellformed.
package driftlog
