// Package ipc speaks HTTP and JSON over the endpoint: the server that agents,
// people with curl and the commands call, and the typed Go client. Both halves
// and the one table of codes and statuses live here, so that neither can drift
// from the other. The shapes on the wire are the root package's types.
//
// # The way of a request
//
// An accepted connection gets its caller once, from the kernel (peer.go). A
// request is then, in this order: refused if a browser sent it; matched to a
// route (routes.go); its names, query and scope checked; let through when it is
// its owner's turn (turns.go); its body read into one buffer of known size
// (body.go); answered by the store (store.go). Every error takes one way out
// (problem.go).
//
// # Three ways to save, one decoder
//
// intake.go alone turns a request into a ckpt.SaveRequest, from the JSON
// envelope, from raw bytes with a query, or from a change to an earlier
// checkpoint. The store checks the request; nothing here repeats its rules.
//
// # Runs
//
// What a run consists of (steps, operations, events, prompts) comes from the
// second half of the store (runstore.go) and needs no more than decoding and
// passing on. Keys stand in paths as one escaped part, whatever they are.
// Following events is the one call that does not end by itself (events.go): it
// has a share of its own, waits for the store to say that something changed,
// and ends when the client goes or does not read, and when the server stops.
// The client's Follow then comes back with the last sequence number it has.
//
// # States are never re-encoded
//
// The bytes of a state pass through as they are in both directions. Replies
// that carry one are written by hand around it, and the header Ckpt-State-Range
// says at which bytes of the body it stands, so that a client may cut it out
// instead of parsing it.
//
// This package may import the root package, internal/ipc/endpoint and internal/delta; of
// others, golang.org/x/sync, google/uuid, cenkalti/backoff/v4 (client),
// evanphx/json-patch/v5 and wI2L/jsondiff (changes and differences).
package ipc
