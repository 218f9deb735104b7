// Package ckptsidecar defines the terms of ckptsidecar: what a checkpoint, a run and a
// policy are, which names are valid, which errors exist, and the schema of the database.
// Every other package uses these types.
//
// The JSON tags of the types here are the wire format of the HTTP API and the shapes that
// api/openapi.yaml describes. There is no second set of structs.
//
// This package may import the standard library only.
package ckptsidecar
