// Package schema compiles JSON Schemas that users wrote, and tries them on states.
//
// jsonschema-go parses and resolves a schema. This package evaluates it, and pays for
// every operation before it is done: the library has no limit, and did not end on 22
// nested allOf. This package also knows the place in the state, and puts no value of the
// state into a message.
//
// This package may import the root package, jsonschema-go, internal/jsontext,
// internal/drift/meter and internal/drift/phrase.
package schema
