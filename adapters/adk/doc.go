// Package adk keeps the sessions of the Agent Development Kit for Go in ckptsidecar. An event that
// AppendEvent has acknowledged is on disk, and another process can continue the session. This is a
// separate module, so that other users do not need the kit.
//
// # What this package may import
//
// The standard library; the kit; this project's root package and package client.
package adk
