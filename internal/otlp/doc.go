// Package otlp turns the spans of an OpenTelemetry export into what the daemon keeps of
// them: calls of tools, calls of models, segments of agents. It is pure: it opens nothing
// and stores nothing.
//
// It counts the messages of a body before it decodes the body (count.go), because 4 MiB of
// empty spans decode to 610 MiB. Then it decodes the body (decode.go), and reads each span
// by the two tables of tables.go (translate.go). It reads no other attribute.
//
// This package may import the root package, internal/jsontext and internal/otlp/observed;
// of others, go.opentelemetry.io/proto/slim/otlp and google.golang.org/protobuf.
package otlp
