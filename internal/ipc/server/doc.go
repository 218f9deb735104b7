// Package server serves HTTP and JSON at the endpoint: for agents, for people with curl,
// and for the command.
//
// # The path of a request
//
// An accepted connection gets its caller once, from the kernel (peer.go). A request then
// goes through these steps. The server refuses it if a browser sent it, and matches it to
// a route (routes.go). It checks the names, query and scope. The request waits for its
// owner's share (share.go). The server reads the body into one buffer of known size
// (body.go). The store answers the request (store.go). Every error leaves in the same way
// (finish.go, refuse.go).
//
// # Three ways to save, one result
//
// Every form of a save becomes a ckpt.SaveRequest: the JSON envelope, raw bytes with a
// query, or a change to an earlier checkpoint (checkpoints.go, intake.go, delta.go,
// patch.go). The store checks the request; this package does not repeat its rules.
//
// # Runs
//
// Runs, steps, operations, events and prompts each have an interface of the store
// (store.go). The server decodes their requests and passes them on. In paths, a key is
// always one escaped part, whatever its text is. Following is a call that does not end by
// itself (events.go). It has its own share, and waits until the store reports a change.
// It ends when the client leaves or does not read, and when the server stops.
//
// # States are never re-encoded
//
// The bytes of a state pass through unchanged in both directions. Replies that contain a
// state are written by hand around it. The header Ckpt-State-Range gives the position of
// the state in the body, so that a client can cut it out instead of parsing it.
//
// This package may import the root package, internal/delta, internal/ipc,
// internal/ipc/endpoint, internal/jsontext, internal/survey and
// internal/wellformed; of others,
// golang.org/x/sync, evanphx/json-patch/v5 and wI2L/jsondiff.
package server
