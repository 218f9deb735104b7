// Package seal keeps the engine's operator from reading what a host ships: states,
// documents and texts are sealed with AES-256-GCM before they leave the host. It is
// pure: it reads no file and knows no engine.
//
// A realm has keys. What belongs to one run, one agent or one database has a key of its
// own, derived from the realm's with HKDF-SHA256. A seal covers the place of the blob, so
// nothing that is sealed can be moved to another row.
//
// This package may import internal/fleet.
package seal
