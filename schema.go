package ckptsidecar

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"
)

// Schema is the form of the database, as SQL that may run any number of times.
// It is written for auditors to read.
//
//go:embed schema.sql
var Schema string

// The numbers that identify a ckptsidecar database.
const (
	ApplicationID = 0x636b7074 // "ckpt"
	SchemaVersion = 1
)

// guardsHeading stands in Schema after the tables and before the guards and the views.
const guardsHeading = "-- ---------------------------------------------------------------- guards ---"

// SchemaTables is the part of Schema that makes the tables and their indexes.
func SchemaTables() string {
	tables, _, _ := strings.Cut(Schema, guardsHeading)
	return tables
}

// SchemaFingerprint is the SHA-256 of SchemaTables without comments and spacing, as 64 hexadecimal
// digits. A database keeps the fingerprint of the program that made it. Each start makes guards
// and views anew, so the fingerprint does not cover them.
func SchemaFingerprint() string {
	var words []string
	for line := range strings.Lines(SchemaTables()) {
		line, _, _ = strings.Cut(line, "--")
		words = append(words, strings.Fields(line)...)
	}
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	return hex.EncodeToString(sum[:])
}
