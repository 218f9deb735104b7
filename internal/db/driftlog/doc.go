// Package driftlog watches over runs inside the store's transactions: it shows each step, state and
// heartbeat to the detectors, stores their findings, and handles the consequences.
//
// It may import the root package, internal/db/blob, internal/db/ledger,
// internal/db/sqlite, internal/drift/observer, internal/jsontext, internal/secrets,
// internal/survey and internal/wellformed.
package driftlog
