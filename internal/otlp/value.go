package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// textOf returns a value that is a text, and "" for any other value.
func textOf(v *common.AnyValue) string { return v.GetStringValue() }

// numberOf returns a value that is a number, or a text that contains one: emitters
// write counts both ways.
func numberOf(v *common.AnyValue) (x float64, is bool) {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_IntValue:
		return float64(v.IntValue), true
	case *common.AnyValue_DoubleValue:
		return v.DoubleValue, !math.IsNaN(v.DoubleValue) && !math.IsInf(v.DoubleValue, 0)
	case *common.AnyValue_StringValue:
		x, err := strconv.ParseFloat(strings.TrimSpace(v.StringValue), 64)
		return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
	}
	return 0, false
}

// jsonOf returns a value as JSON. A text that contains a JSON object or array is
// returned as that JSON, because emitters write arguments and results like this.
func jsonOf(v *common.AnyValue) ckpt.JSON {
	if text, is := v.GetValue().(*common.AnyValue_StringValue); is {
		inner := strings.TrimSpace(text.StringValue)
		if len(inner) <= ckpt.MaxValue && (strings.HasPrefix(inner, "{") || strings.HasPrefix(inner, "[")) && jsontext.Check([]byte(inner)) == nil {
			return ckpt.JSON(inner)
		}
	}
	var b bytes.Buffer
	writeValue(&b, v)
	if b.Len() > ckpt.MaxValue {
		return nil
	}
	return b.Bytes()
}

// full reports whether a value is already longer than is kept. Then nothing more is written,
// because the value needs memory that nobody has counted.
func full(b *bytes.Buffer) bool { return b.Len() > ckpt.MaxValue }

func writeValue(b *bytes.Buffer, v *common.AnyValue) {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		writeText(b, v.StringValue)
	case *common.AnyValue_BoolValue:
		b.WriteString(strconv.FormatBool(v.BoolValue))
	case *common.AnyValue_IntValue:
		b.WriteString(strconv.FormatInt(v.IntValue, 10))
	case *common.AnyValue_DoubleValue:
		if number, err := json.Marshal(v.DoubleValue); err == nil {
			b.Write(number)
			return
		}
		b.WriteString("null") // it is infinite or not a number
	case *common.AnyValue_BytesValue:
		writeText(b, base64.StdEncoding.EncodeToString(v.BytesValue))
	case *common.AnyValue_ArrayValue:
		b.WriteByte('[')
		for i, item := range v.ArrayValue.GetValues() {
			if full(b) {
				return
			}
			if i > 0 {
				b.WriteByte(',')
			}
			writeValue(b, item)
		}
		b.WriteByte(']')
	case *common.AnyValue_KvlistValue:
		writeMembers(b, v.KvlistValue.GetValues())
	default:
		b.WriteString("null")
	}
}

// writeMembers writes an object. If members have the same name, the first counts.
func writeMembers(b *bytes.Buffer, members []*common.KeyValue) {
	b.WriteByte('{')
	seen := make(map[string]bool, len(members))
	for _, member := range members {
		name := strings.ToValidUTF8(member.GetKey(), "\ufffd")
		if full(b) {
			return
		}
		if seen[name] {
			continue
		}
		if len(seen) > 0 {
			b.WriteByte(',')
		}
		seen[name] = true
		writeText(b, name)
		b.WriteByte(':')
		writeValue(b, member.GetValue())
	}
	b.WriteByte('}')
}

// writeText writes a text as JSON, in parts: JSON can be six times as long as the text.
func writeText(b *bytes.Buffer, s string) {
	const most = 4 << 10
	b.WriteByte('"')
	for len(s) > 0 && !full(b) {
		n := min(len(s), most)
		for n < len(s) && n > most-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		text, _ := json.Marshal(s[:n]) // a text can always be written
		b.Write(text[1 : len(text)-1])
		s = s[n:]
	}
	b.WriteByte('"')
}
