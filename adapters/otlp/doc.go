// Package otlp tests the intake of OpenTelemetry's spans with the official
// exporters: those of Go here, and those of Node in the folder node. It is a module
// of its own, because the exporters must not come into the main one. docs/OTLP.md
// says what agents have of it.
package otlp
