// Package genkit keeps the sessions of Genkit for Go in ckptsidecar: what Save has
// acknowledged is on disk, and another process goes on with the session. It is a
// module of its own, so that nobody else needs Genkit.
//
// # What this package may import
//
// The standard library; Genkit; the root package and client of ours.
package genkit
