// Package client speaks to the daemon in typed calls. The command, the hooks,
// the MCP server and the public Go client use it.
//
// A Client keeps one connection, sends requests in order, and repeats requests that are
// safe to repeat. If a caller gives up a write, the Client waits for its answer before it
// sends the next request, so that nothing overtakes the write. After an interruption,
// Follow continues with the last sequence number that it has.
//
// This package may import the root package, internal/delta, internal/ipc,
// internal/ipc/endpoint, internal/jsontext, internal/periodic,
// internal/survey and internal/wellformed;
// of others,
// google/uuid and cenkalti/backoff/v4.
package client
