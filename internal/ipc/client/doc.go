// Package client speaks to the daemon in typed calls. The command, the hooks,
// the MCP server and the public Go client use it.
//
// A Client keeps one connection, sends requests in order, repeats what may be
// repeated, and waits for the answer to a write that was given up, so that
// nothing overtakes it. Follow comes back with the last sequence number it has.
//
// This package may import the root package, internal/delta, internal/ipc,
// internal/ipc/endpoint, internal/jsontext, internal/periodic,
// internal/survey and internal/wellformed;
// of others,
// google/uuid and cenkalti/backoff/v4.
package client
