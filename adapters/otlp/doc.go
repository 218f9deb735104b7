// Package otlp tests the intake of OpenTelemetry's spans with the official exporters: those of Go
// here, and those of Node in the folder node. It is a separate module, because the main module must
// not depend on the exporters. docs/OTLP.md describes what agents get from it.
package otlp
