// Package secrets finds what looks like a secret in a state: values under
// well-known key names, and tokens of well-known shapes anywhere in text. It is
// pure, runs in one pass at about the speed of checking JSON, and prefers
// silence to false alarms: people leave a warning on only if it is right.
//
// It may import the root package and internal/jsontext.
package secrets
