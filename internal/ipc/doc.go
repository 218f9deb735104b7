// Package ipc is the wire format that the server and the client share: paths and headers,
// content types, the one table of error codes and HTTP statuses, the frames that carry
// values of LangGraph, and the shapes that are not types of the root package. It opens
// nothing and calls no other program.
//
// The server and the client are in internal/ipc/server and internal/ipc/client, which do
// not import each other. internal/ipc/endpoint listens and dials.
//
// This package may import the root package and the standard library.
package ipc
