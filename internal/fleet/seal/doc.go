// Package seal prevents the engine's operator from reading what a host ships: it seals
// states, documents and texts with AES-256-GCM before they leave the host. It is pure: it
// reads no file and knows no engine.
//
// A host has one ring of keys. Each run, each agent and each database has a key of its own, derived
// from the key that seals with HKDF-SHA256. A seal covers the place of the blob, so nothing
// that is sealed can be moved to another row.
//
// This package may import internal/fleet.
package seal
