// Package ledger is the base of all parts of the store: the transaction with its row of the audit
// log for each act, the rows of agents, runs and checkpoints, retention, damage, and the guards of
// the schema. DESIGN.md says how and why.
//
// It may import the root package, internal/db/blob, internal/db/sqlite, internal/db/usage,
// internal/delta, internal/jsontext, internal/osfile, internal/secrets, internal/survey,
// internal/wellformed and, for the types of values that callers pass to the store,
// internal/drift/observer, internal/liveness, internal/resume and internal/retention.
package ledger
