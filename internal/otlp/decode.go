package otlp

import (
	"bytes"
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
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(replaceWrongIDs(body), request) != nil {
			return nil, notJSON // without the parser's message, which can quote the body
		}
		return request, eachSpan(request, readHexIDs)
	}
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, request) != nil {
		return nil, notBinary
	}
	return request, nil
}

// wrongID replaces an id in JSON that is not hexadecimal. Unlike that one, base64 can have it.
const wrongID = "zz"

// replaceWrongIDs replaces each id in a body that is not hexadecimal, because one that base64 cannot
// have would refuse the whole body. It copies the body if it replaces any.
func replaceWrongIDs(body []byte) []byte {
	var replaced []byte
	done := 0 // so much of the body is in replaced
	for at := 0; ; {
		n := bytes.Index(body[at:], []byte(`Id"`))
		if n < 0 {
			break
		}
		at += n + len(`Id"`)
		if name := body[:at]; !bytes.HasSuffix(name, []byte(`raceId"`)) && !bytes.HasSuffix(name, []byte(`panId"`)) {
			continue
		}
		rest, isName := bytes.CutPrefix(bytes.TrimLeft(body[at:], jsonSpace), []byte(":"))
		rest, isText := bytes.CutPrefix(bytes.TrimLeft(rest, jsonSpace), []byte(`"`))
		length := endOfText(rest)
		if !isName || !isText || length < 0 || isHex(rest[:length]) {
			continue
		}
		if replaced == nil {
			replaced = make([]byte, 0, len(body)+64)
		}
		begin := len(body) - len(rest)
		replaced = append(append(replaced, body[done:begin]...), wrongID...)
		done = begin + length
		at = done
	}
	if replaced == nil {
		return body
	}
	return append(replaced, body[done:]...)
}

// jsonSpace is what can stand between the parts of JSON.
const jsonSpace = " \t\r\n"

// endOfText returns where a text in JSON ends whose first quote was read, -1 if it does not end.
func endOfText(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// isHex reports whether a text consists of whole bytes in hexadecimal.
func isHex(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return len(text)%2 == 0
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
