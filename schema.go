package ckptsidecar

import _ "embed"

// Schema is the newest form of the database, as SQL that may run any number
// of times. It is written for auditors to read.
//
//go:embed schema.sql
var Schema string

// The numbers that identify a ckptsidecar database.
const (
	ApplicationID = 0x636b7074 // "ckpt"
	SchemaVersion = 6
)
