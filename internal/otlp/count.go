package otlp

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Form is the encoding of a body.
type Form int

// The forms of a body.
const (
	Binary Form = iota
	JSON
)

// The limits of a body.
const (
	MaxBody     = 16 << 20 // as it was sent, and also inflated
	maxMessages = 100_000
	maxDepth    = 32     // of a value
	maxTold     = 10_000 // calls that messages tell of; one span may go beyond that
)

// message is a kind of message of the protocol. It says which of its fields are
// messages themselves.
type message struct {
	fields map[protowire.Number]*message
	value  bool // it is a value, whose depth is limited
}

// exportRequest describes the messages inside an ExportTraceServiceRequest.
var exportRequest = func() *message {
	value := &message{value: true}
	attribute := &message{fields: map[protowire.Number]*message{2: value}}
	value.fields = map[protowire.Number]*message{
		5: {fields: map[protowire.Number]*message{1: value}},     // an array
		6: {fields: map[protowire.Number]*message{1: attribute}}, // a list of keys and values
	}
	leaf := &message{}
	span := &message{fields: map[protowire.Number]*message{
		9:  attribute,
		11: {fields: map[protowire.Number]*message{3: attribute}}, // an event
		13: {fields: map[protowire.Number]*message{4: attribute}}, // a link
		15: leaf,                                                  // the status
	}}
	scope := &message{fields: map[protowire.Number]*message{3: attribute}}
	resource := &message{fields: map[protowire.Number]*message{1: attribute, 3: leaf}}
	scopeSpans := &message{fields: map[protowire.Number]*message{1: scope, 2: span}}
	resourceSpans := &message{fields: map[protowire.Number]*message{1: resource, 2: scopeSpans}}
	return &message{fields: map[protowire.Number]*message{1: resourceSpans}}
}()

// Weigh returns how much memory a body can need at most while it is read. It refuses a
// body that would need too much. It allocates nothing.
func Weigh(body []byte, form Form) (most int64, err error) {
	if len(body) > MaxBody {
		return 0, tooLarge
	}
	messages := 0
	if form == JSON {
		messages, err = countJSON(body)
	} else {
		c := counter{}
		err = c.count(exportRequest, body, 0)
		messages = c.messages
	}
	told := min(bytes.Count(body, []byte(toldWord)), maxTold+mostTold)
	return perByte*int64(len(body)) + perMessage*int64(messages) + perTold*int64(told), err
}

// WeighAtMost returns how much memory a body of a size can need, whatever it contains.
func WeighAtMost(size int64) int64 {
	return perByte*size + perMessage*min(size/2+1, maxMessages) + perTold*min(size/int64(len(toldWord)), maxTold+mostTold)
}

// The memory that a byte and a message of a body take, and a call that a model's messages tell of. Each has the word.
const (
	perByte    = 8
	perMessage = 512
	perTold    = 2048
	toldWord   = "tool_call"
)

// counter counts the messages of a body.
type counter struct{ messages int }

func (c *counter) count(m *message, b []byte, depth int) error {
	if c.messages++; c.messages > maxMessages {
		return tooManyMessages
	}
	if m.value {
		if depth++; depth > maxDepth {
			return tooDeep
		}
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return notBinary
		}
		b = b[n:]
		inner := m.fields[number]
		if inner == nil || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return notBinary
			}
			b = b[n:]
			continue
		}
		field, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return notBinary
		}
		if err := c.count(inner, field, depth); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

var (
	tooLarge        = ckpt.Errorf(ckpt.CodeTooLarge, "the body is larger than %d bytes: send fewer spans at once", MaxBody)
	tooManyMessages = ckpt.Errorf(ckpt.CodeTooLarge, "the body holds more than %d messages: send fewer spans at once", maxMessages)
	tooDeep         = ckpt.Errorf(ckpt.CodeInvalid, "a value is nested more than %d levels deep", maxDepth)
	notBinary       = ckpt.Errorf(ckpt.CodeInvalid, "the body is not an ExportTraceServiceRequest of OTLP in binary form")
	notJSON         = ckpt.Errorf(ckpt.CodeInvalid, "the body is not an ExportTraceServiceRequest of OTLP in JSON")
)

// maxBrackets is how deep brackets can be nested in JSON: the brackets around a span,
// and five for each level of a value.
const maxBrackets = 12 + 5*maxDepth

// countJSON counts the messages of a body in JSON. Each message is an object there.
func countJSON(body []byte) (messages int, err error) {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if c == '{' {
				messages++
			}
			if depth++; depth > maxBrackets {
				return messages, tooDeep
			}
			if messages > maxMessages {
				return messages, tooManyMessages
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return messages, nil
}
