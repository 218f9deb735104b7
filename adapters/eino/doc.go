// Package eino keeps the checkpoints of eino graphs in ckptsidecar: a graph
// that was interrupted goes on in another process, and what its checkpoint
// holds is on disk when Set has answered. It is a module of its own, so that
// nobody else needs eino.
//
// # What this package may import
//
// The standard library; the root package and client of ours.
package eino
