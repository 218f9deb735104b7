// Package mcpserver lets a model use the daemon: it is a server of the Model Context
// Protocol for one agent's checkpoints and runs. The only thing that it keeps and the
// daemon does not are the epochs of the runs that it has claimed. So it can be killed at
// any time: the next server asks how to go on.
//
// A tool's input and output are Go structs, and their JSON Schemas are made from these
// structs. The project's own strict JSON decoder reads the input, so that a wrong
// argument gets a sentence that a model can act on. Such an answer is a result with
// isError. Errors of the protocol are for hosts: an unknown tool, or a resource that
// does not exist.
//
// # What this package may import
//
// The standard library and the Go SDK of the protocol, which no other package may
// import; from this project the root package, internal/ipc/client, internal/jsontext and
// internal/wellformed.
package mcpserver
