// Package secrets finds what looks like a secret: values under well-known keys,
// tokens of well-known forms, passwords in URLs and in authorization headers, and
// what text gives to such a name (PGPASSWORD=…, "api_key": "…"). It is pure, and
// it prefers silence to false alarms: people leave a warning on only if it is right.
//
// A text is searched once. Two bytes decide at each place whether to look closer,
// so that ordinary text costs little. Of a state that follows another only what is
// new is searched.
//
// JSON is searched as it stands. Escapes do not hide anything: a string in which a
// character is escaped that needs no escape is searched again without its escapes.
//
// It may import the root package and internal/jsontext.
package secrets
