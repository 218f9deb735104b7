package otlp

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// field encodes a field of bytes in binary form.
func field(number protowire.Number, inner []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
}

// request puts spans into a body.
func request(spans []byte) []byte { return field(1, field(2, spans)) }

func TestBodiesAreCountedBeforeTheyAreDecoded(t *testing.T) {
	value := field(1, []byte("x"))
	for range maxDepth {
		value = field(5, field(1, value)) // an array with one value
	}
	text := `{"stringValue":"x"}`
	for range 3 * maxDepth {
		text = `{"arrayValue":{"values":[` + text + `]}}`
	}
	for name, c := range map[string]struct {
		body []byte
		form Form
		code ckpt.Code
	}{
		"empty spans":         {request(bytes.Repeat(field(2, nil), 2<<20)), Binary, ckpt.CodeTooLarge},
		"empty spans as JSON": {[]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("{},", 1<<20) + `{}]}]}]}`), JSON, ckpt.CodeTooLarge},
		"a large body":        {make([]byte, MaxBody+1), Binary, ckpt.CodeTooLarge},
		"a deep value":        {request(field(2, field(9, field(2, value)))), Binary, ckpt.CodeInvalid},
		"a deep value as JSON": {
			[]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"a","value":` + text + `}]}]}]}]}`), JSON, ckpt.CodeInvalid},
		"no body at all": {[]byte("\xff\xff\xff"), Binary, ckpt.CodeInvalid},
		"no JSON":        {[]byte(`{"resourceSpans":`), JSON, ckpt.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := allocated(func() { _, err = Read(c.body, Options{Form: c.form, Now: recorded}) })
			if ckpt.CodeOf(err) != c.code {
				t.Errorf("the error is %v, not %s", err, c.code)
			}
			if got > 1<<20 {
				t.Errorf("%d bytes were allocated to refuse a body", got)
			}
		})
	}
}

// allocated returns how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzRead(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.json")
	for _, path := range paths {
		body, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, true)
		if request, err := decode(body, JSON); err == nil {
			f.Add(Response(Binary, len(request.ResourceSpans), "x"), false)
		}
	}
	f.Add(request(bytes.Repeat(field(2, field(9, nil)), 100)), false)
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"!","spanId":"abcde","parentSpanId":"a\"b"}]}]}]}`), true)
	f.Fuzz(func(t *testing.T, body []byte, isJSON bool) {
		o := Options{Form: Binary, Content: observed.Keep, Now: recorded}
		if isJSON {
			o.Form = JSON
		}
		most, err := Weigh(body, o.Form)
		if err != nil {
			return
		}
		var batch *Batch
		used := allocated(func() { batch, err = Read(body, o) })
		if used > uint64(most)+64<<10 {
			t.Errorf("a body of %d bytes that may need %d took %d", len(body), most, used)
		}
		if err != nil {
			return
		}
		if batch.All != len(batch.Spans)-batch.told+batch.Ignored+batch.Refused {
			t.Errorf("%d spans are %d, %d ignored and %d refused", batch.All, len(batch.Spans), batch.Ignored, batch.Refused)
		}
		for _, span := range batch.Spans {
			if err := ckpt.CheckKey("step key", span.Key()); err != nil {
				t.Error(err)
			}
			if span.Run != "" && ckpt.CheckRunName(span.Run) != nil {
				t.Errorf("%q is no name of a run", span.Run)
			}
		}
	})
}

func TestWhatABodyTakesIsKnown(t *testing.T) {
	span := field(2, bytes.Join([][]byte{field(1, bytes.Repeat([]byte{1}, 16)), field(2, bytes.Repeat([]byte{2}, 8)),
		field(9, append(field(1, []byte("k")), field(2, field(1, []byte("v")))...))}, nil))
	for name, body := range map[string][]byte{
		"spans":       request(bytes.Repeat(span, 20_000)),
		"empty spans": request(bytes.Repeat(field(2, nil), 90_000)),
		"attributes":  request(field(2, bytes.Repeat(field(9, nil), 90_000))),
		"events":      request(field(2, bytes.Repeat(field(11, nil), 90_000))),
		"links":       request(field(2, bytes.Repeat(field(13, nil), 90_000))),
		"values":      request(field(2, field(9, field(2, field(5, bytes.Repeat(field(1, nil), 90_000)))))),
	} {
		most, err := Weigh(body, Binary)
		if err != nil {
			t.Fatal(err)
		}
		if used := allocated(func() { _, _ = Read(body, Options{Now: recorded}) }); used > uint64(most) {
			t.Errorf("%s: %d bytes may need %d and took %d", name, len(body), most, used)
		}
	}
}

func TestIDsInJSONAreHexadecimal(t *testing.T) {
	batch, err := Read([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0AF7651916CD43DD8448EB211C80319C","spanId":"00000000000000a1",
		"parentSpanId":"zzzz","name":"ai.toolCall","startTimeUnixNano":"1790000000000000000","endTimeUnixNano":1790000000000000001}]}]}]}`),
		Options{Form: JSON, Now: recorded})
	if err != nil || batch.Refused != 1 {
		t.Errorf("a parent that is no id: %+v, %v", batch, err)
	}
}

// TestWrongIDInJSONRefusesOneSpan: an id that base64 cannot have refuses its span, and the other spans of
// the body are read.
func TestWrongIDInJSONRefusesOneSpan(t *testing.T) {
	const times = `"name":"ai.toolCall","startTimeUnixNano":"1790000000000000000","endTimeUnixNano":"1790000000000000001"`
	const good = `{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00000000000000a1",` + times + `}`
	for name, c := range map[string]struct {
		span    string
		refused int
	}{
		"a span id":         {`{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"abcde",` + times + `}`, 1},
		"a trace id":        {`{"traceId": "0af7651916cd43dd8448eb211c80319", "spanId" : "00000000000000a2",` + times + `}`, 1},
		"a parent's id":     {`{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00000000000000a2","parentSpanId":"abcde",` + times + `}`, 1},
		"one character":     {`{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"!",` + times + `}`, 1},
		"an escaped quote":  {`{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"ab\"cde",` + times + `}`, 1},
		"the id of a link":  {`{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00000000000000a2","links":[{"spanId":"abcde"}],` + times + `}`, 0},
		"a text like an id": {`{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00000000000000a2","attributes":[{"key":"spanId","value":{"stringValue":"\"spanId\":\"abcde\""}}],` + times + `}`, 0},
	} {
		body := []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[` + good + "," + c.span + "," + good + `]}]}]}`)
		was := bytes.Clone(body)
		batch, err := Read(body, Options{Form: JSON, Now: recorded})
		if err != nil || batch.Refused != c.refused || len(batch.Spans) != 3-c.refused {
			t.Errorf("%s: %+v, %v", name, batch, err)
		}
		if !bytes.Equal(body, was) {
			t.Errorf("%s: the body was changed", name)
		}
	}
	for name, body := range map[string]string{
		"it ends after a name":     `{"resourceSpans":[{"scopeSpans":[{"spans":[{"spanId"`,
		"it ends after a colon":    `{"resourceSpans":[{"scopeSpans":[{"spans":[{"spanId": `,
		"it ends in an id":         `{"resourceSpans":[{"scopeSpans":[{"spans":[{"spanId":"abc\`,
		"it begins with the name":  `spanId":"abcde"`,
		"it is wrong in all other": `{"resourceSpans":[{"scopeSpans":[{"spans":[{"spanId":"abcde"},7]}]}]}`,
	} {
		if batch, err := Read([]byte(body), Options{Form: JSON, Now: recorded}); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%s: %+v, %v", name, batch, err)
		}
	}
}

// TestWhatToldCallsTakeIsKnown: messages can tell of many calls with few bytes.
func TestWhatToldCallsTakeIsKnown(t *testing.T) {
	attribute := func(key, value string) []byte {
		return field(9, append(field(1, []byte(key)), field(2, field(1, []byte(value)))...))
	}
	now := uint64(recorded.UnixNano())
	times := protowire.AppendFixed64(protowire.AppendTag(nil, 7, protowire.Fixed64Type), now)
	times = protowire.AppendFixed64(protowire.AppendTag(times, 8, protowire.Fixed64Type), now)
	const call, answer = `{"type":"tool_call","id":"a","name":"b"}`, `{"role":"tool","parts":[{"type":"tool_call_response","id":"a","response":"<"}]}`
	model := func(calls, turns int) []byte {
		turn := `{"role":"assistant","parts":[` + strings.Repeat(call+",", calls-1) + call + `]},` + answer
		return field(2, bytes.Join([][]byte{field(1, bytes.Repeat([]byte{1}, 16)), field(2, bytes.Repeat([]byte{2}, 8)), times,
			attribute("gen_ai.operation.name", "chat"), attribute(inputMessages, "["+strings.Repeat(turn+",", turns-1)+turn+"]")}, nil))
	}
	for name, c := range map[string]struct {
		spans []byte
		told  int
	}{
		"many spans":   {bytes.Repeat(model(mostTold, 1), 4000), maxTold + mostTold - maxTold%mostTold},
		"many calls":   {model(100_000, 1), mostTold},
		"many answers": {model(1, 100_000), 1},
	} {
		body := request(c.spans)
		most, err := Weigh(body, Binary)
		if err != nil || most > WeighAtMost(int64(len(body))) {
			t.Fatalf("%s: %d of at most %d, %v", name, most, WeighAtMost(int64(len(body))), err)
		}
		var batch *Batch
		used := allocated(func() { batch, err = Read(body, Options{Content: observed.Keep, Now: recorded}) })
		if err != nil || batch.told != c.told {
			t.Fatalf("%s: %d calls, not %d, %v", name, batch.told, c.told, err)
		}
		if used > uint64(most) {
			t.Errorf("%s: %d bytes may need %d and took %d", name, len(body), most, used)
		}
	}
}

// TestWhatATextTakesIsKnown: a text can be six times as long in JSON, so it is measured before it is
// written.
func TestWhatATextTakesIsKnown(t *testing.T) {
	attribute := func(key string, value []byte) []byte {
		return field(9, append(field(1, []byte(key)), field(2, value)...))
	}
	text := field(1, bytes.Repeat([]byte("<"), 15<<20))
	list := field(5, bytes.Repeat(field(1, field(1, bytes.Repeat([]byte("<"), 1<<20))), 15))
	for name, value := range map[string][]byte{"a text": text, "a list of texts": list} {
		now := uint64(recorded.UnixNano())
		times := protowire.AppendFixed64(protowire.AppendTag(nil, 7, protowire.Fixed64Type), now)
		times = protowire.AppendFixed64(protowire.AppendTag(times, 8, protowire.Fixed64Type), now)
		body := request(field(2, bytes.Join([][]byte{field(1, bytes.Repeat([]byte{1}, 16)), field(2, bytes.Repeat([]byte{2}, 8)), times,
			attribute("gen_ai.operation.name", field(1, []byte("execute_tool"))), attribute("gen_ai.tool.call.arguments", value)}, nil)))
		most, err := Weigh(body, Binary)
		if err != nil {
			t.Fatal(err)
		}
		var batch *Batch
		used := allocated(func() { batch, err = Read(body, Options{Content: observed.Hash, Now: recorded}) })
		if err != nil || len(batch.Spans) != 1 || batch.Spans[0].Args != nil {
			t.Fatalf("%s: %+v, %v", name, batch, err)
		}
		if used > uint64(most) {
			t.Errorf("%s: %d MiB may need %d MiB and took %d MiB", name, len(body)>>20, most>>20, used>>20)
		}
	}
}
