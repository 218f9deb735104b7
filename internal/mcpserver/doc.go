// Package mcpserver lets a model use the daemon: a server of the Model Context
// Protocol over one agent's checkpoints and runs. It holds nothing that the
// daemon does not hold but the epochs of the runs that it has claimed, so it
// may be killed at any time: the next one asks how to go on.
//
// A tool's input and output are Go structs; their JSON Schemas are made of the
// same structs, and what comes in is read by our own strict JSON, so that a
// wrong argument is answered with a sentence that a model can act on. Such an
// answer is a result with isError. Errors of the protocol are for hosts: an
// unknown tool, a resource that is not there.
//
// # What this package may import
//
// The standard library and the Go SDK of the protocol, which no other package may
// name; the root package, internal/ipc/client, internal/jsontext and internal/wellformed
// of ours.
package mcpserver
