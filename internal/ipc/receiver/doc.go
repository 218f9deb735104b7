// Package receiver takes OpenTelemetry's spans: by gRPC and by HTTP, on a socket of
// its own and, where the settings say so, on a loopback port.
//
// # Why a server of its own
//
// The server of the API sets deadlines on connections, which the streams of HTTP/2
// share. So this one is another http.Server, and nothing of the API can be reached
// through it.
//
// # The way of a request
//
// Whose it is says the kernel on the socket, and a token on the port (identity.go).
// Its body is read and inflated within bounds (body.go), counted, decoded and
// translated by internal/otlp, and stored in one transaction. It is answered after
// the commit, late rather than not: some exporters never send again. connect only
// speaks gRPC around that (grpc.go): it is given an empty message, because the
// body was read before.
//
// It may import the root package, internal/otlp, internal/otlp/observed,
// internal/ipc/endpoint; of others,
// connectrpc.com/connect, golang.org/x/sync and golang.org/x/time.
package receiver
