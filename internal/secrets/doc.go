// Package secrets finds what looks like a secret: values under well-known keys, tokens
// of well-known forms, passwords in URLs and in authorization headers, and values that
// text assigns to such names (PGPASSWORD=…, "api_key": "…"). It is pure. It prefers
// silence to false alarms: people leave a warning on only if it is right.
//
// It searches a text once. At each place two bytes decide whether to look closer, so
// ordinary text costs little. In a state that follows another one, it searches only
// what is new.
//
// It searches JSON as it stands. Escapes hide nothing: if a string has an escape that
// it does not need, the string is searched again without its escapes.
//
// This package may import the root package and internal/jsontext.
package secrets
