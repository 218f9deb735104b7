// Package server answers HTTP and JSON over the endpoint: to agents, to people
// with curl, and to the command.
//
// # The way of a request
//
// An accepted connection gets its caller once, from the kernel (peer.go). A
// request then goes through these steps. It is refused if a browser sent it,
// and matched to a route (routes.go). Its names, query and scope are checked.
// It waits for its owner's share (share.go). Its body is read into one buffer of
// known size (body.go). The store answers it (store.go). Every error takes one
// way out (finish.go, refuse.go).
//
// # Three ways to save, one decoder
//
// intake.go alone turns a request into a ckpt.SaveRequest, from the JSON
// envelope, from raw bytes with a query, or from a change to an earlier
// checkpoint. The store checks the request; nothing here repeats its rules.
//
// # Runs
//
// Steps, operations, events and prompts come from the second half of the store
// (runstore.go). They are decoded and passed on. Keys stand in paths as one
// escaped part, whatever they are. Following events is the one call that does
// not end by itself (events.go). It has a share of its own, and waits for the
// store to report a change. It ends when the client leaves or does not read,
// and when the server stops.
//
// # States are never re-encoded
//
// The bytes of a state pass through as they are in both directions. Replies
// that carry one are written by hand around it. The header Ckpt-State-Range
// tells at which bytes of the body the state stands, so that a client may cut
// it out instead of parsing it.
//
// This package may import the root package, internal/delta, internal/ipc,
// internal/ipc/endpoint, internal/jsontext, internal/survey and
// internal/wellformed; of others,
// golang.org/x/sync, evanphx/json-patch/v5 and wI2L/jsondiff.
package server
