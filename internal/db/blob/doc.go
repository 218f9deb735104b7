// Package blob stores states as pieces. It handles a state in the database, the current states of
// runs in memory, and the work between a request and a row (checking, looking for secrets, hashing,
// comparing, deflating). DESIGN.md says how and why.
//
// It may import the root package, internal/db/sqlite, internal/delta,
// internal/jsontext and internal/secrets.
package blob
