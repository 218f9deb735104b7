// Package genkit keeps the sessions of Genkit for Go in ckptsidecar. A session that Save has
// acknowledged is on disk, and another process can continue it. This is a separate module, so that
// other users do not need Genkit.
//
// # What this package may import
//
// The standard library; Genkit; this project's root package and package client.
package genkit
