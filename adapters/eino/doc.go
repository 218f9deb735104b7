// Package eino keeps the checkpoints of eino graphs in ckptsidecar. A graph that was interrupted
// can continue in another process, and the content of its checkpoint is on disk when Set returns.
// This is a separate module, so that other users do not need eino.
//
// # What this package may import
//
// The standard library; this project's root package and package client.
package eino
