package otlp

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// decode reads a body after counting its messages.
func decode(body []byte, form Form) (*collector.ExportTraceServiceRequest, error) {
	if _, err := Weigh(body, form); err != nil {
		return nil, err
	}
	request := new(collector.ExportTraceServiceRequest)
	if form == JSON {
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, request) != nil {
			return nil, notJSON // without the parser's message, which can quote the body
		}
		return request, eachSpan(request, readHexIDs)
	}
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, request) != nil {
		return nil, notBinary
	}
	return request, nil
}

// readHexIDs corrects the ids of a span, which were read as base64: in JSON, OTLP
// writes ids as hexadecimal, unlike all other bytes. An invalid id becomes empty, so
// that the span is refused, but not the batch.
func readHexIDs(s *trace.Span) error {
	for _, id := range []*[]byte{&s.TraceId, &s.SpanId, &s.ParentSpanId} {
		read, err := hex.DecodeString(base64.StdEncoding.EncodeToString(*id))
		if err != nil {
			read = nil
			if id == &s.ParentSpanId {
				s.SpanId = nil
			}
		}
		*id = read
	}
	return nil
}

func eachSpan(request *collector.ExportTraceServiceRequest, do func(*trace.Span) error) error {
	for _, r := range request.ResourceSpans {
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				if span == nil {
					continue
				}
				if err := do(span); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Response returns an ExportTraceServiceResponse. It says that all spans were accepted,
// or how many were not, and why.
func Response(form Form, refused int, why string) []byte {
	response := new(collector.ExportTraceServiceResponse)
	if refused > 0 {
		response.PartialSuccess = &collector.ExportTracePartialSuccess{RejectedSpans: int64(refused), ErrorMessage: why}
	}
	if form == JSON {
		text, _ := protojson.Marshal(response) // numbers and valid text can always be written
		return text
	}
	body, _ := proto.Marshal(response)
	return body
}

// Status returns the body of a refusal: a google.rpc.Status.
func Status(form Form, message string) []byte {
	if form == JSON {
		text, _ := json.Marshal(struct {
			Message string `json:"message"`
		}{message}) // a text can always be written
		return text
	}
	return protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), message)
}
