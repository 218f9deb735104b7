// Package receiver receives OpenTelemetry spans: over gRPC and over HTTP, on its own
// socket and, if the settings say so, on a loopback port.
//
// # Why it has its own server
//
// The API server sets deadlines on connections, and the streams of HTTP/2 share a
// connection. Therefore the receiver is a separate http.Server, and nothing of the API
// can be reached through it.
//
// # The path of a request
//
// On the socket, the kernel identifies the owner; on the port, a token does
// (identity.go). The receiver reads and inflates the body within limits (body.go), and
// counts the spans. internal/otlp decodes and translates them. One transaction stores
// them. The answer follows the commit. A late answer is better than none, because some
// exporters never send again. connect only implements gRPC around that (grpc.go): it gets
// an empty message, because the body was read before.
//
// It may import the root package, internal/otlp, internal/otlp/observed,
// internal/ipc/endpoint; of others,
// connectrpc.com/connect, golang.org/x/sync and golang.org/x/time.
package receiver
