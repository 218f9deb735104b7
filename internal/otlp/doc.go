// Package otlp turns the spans of an OpenTelemetry export into what is kept of
// them: calls of tools, calls of models, segments of agents. It is pure: it
// opens nothing and stores nothing.
//
// A body is counted before it is decoded (count.go), because 4 MiB of empty
// spans decode to 610 MiB. It is then decoded (decode.go), and each span is read
// by the two tables of tables.go (translate.go). No
// other attribute is looked at.
//
// It may import the root package, internal/jsontext and internal/otlp/observed; of others,
// go.opentelemetry.io/proto/slim/otlp and google.golang.org/protobuf.
package otlp
