// Package adk keeps the sessions of the Agent Development Kit for Go in
// ckptsidecar: what AppendEvent has acknowledged is on disk, and another process
// goes on with the session. It is a module of its own, so that nobody else needs
// the kit.
//
// # What this package may import
//
// The standard library; the kit; the root package and client of ours.
package adk
