package otlp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// Where emitters write what a model was given: as one list in JSON, or as flat attributes, one for each value of a message.
const (
	inputMessages     = "gen_ai.input.messages"
	flatInputMessages = "llm.input_messages."
	flatPrefix        = "llm." // of other flat lists: the model's answers, and the tools that it may call
)

// mostTold is the most calls that the messages of one span tell of.
const mostTold = 64

// told is the end of a history of messages: the model's newest calls of tools, and their results. Everything before is known
// from the messages of earlier spans.
type told struct {
	calls    []toldCall
	results  []toldResult
	answered bool // the newest message is not the model's
}

// toldCall is a call of a tool that a message tells of.
type toldCall struct {
	place          int // of its message in the history
	id, name, args value
}

// toldResult is the result of a call.
type toldResult struct {
	id, result value
}

// value is a value in a message: a text in JSON, or the value of an attribute.
type value struct {
	text      []byte
	attribute *common.AnyValue
}

// splitFlat returns the attributes of a span without those that are parts of lists, and those that are parts of the messages that
// the model was given. A long history has thousands of them.
func splitFlat(attributes []*common.KeyValue) (rest, messages []*common.KeyValue) {
	isFlat := func(a *common.KeyValue) bool {
		list, _, nested := strings.Cut(strings.TrimPrefix(a.GetKey(), flatPrefix), ".")
		return nested && strings.HasPrefix(a.GetKey(), flatPrefix) && (list == "input_messages" || list == "output_messages" || list == "tools")
	}
	if !slices.ContainsFunc(attributes, isFlat) {
		return attributes, nil
	}
	for _, a := range attributes {
		switch {
		case strings.HasPrefix(a.GetKey(), flatInputMessages):
			messages = append(messages, a)
		case !isFlat(a):
			rest = append(rest, a)
		}
	}
	return rest, messages
}

// callsTold returns the calls of tools that ended before a model was called, as its messages tell of them. They have no spans of
// their own here, and the store finds out whether they have some elsewhere. A call without a result has ended too if another call
// of the same answer has one, because a model is not called before all have ended.
func callsTold(model *observed.Span, list *common.AnyValue, flat []*common.KeyValue, content observed.Content) []observed.Span {
	var end told
	if list != nil {
		end.readList(list)
	} else {
		end.readFlat(flat)
	}
	if !end.answered || len(end.results) == 0 {
		return nil
	}
	spans := make([]observed.Span, 0, len(end.calls))
	for i, call := range end.calls {
		id, name := call.id.name(), call.name.name()
		if name == "" {
			continue
		}
		span := observed.Span{Told: true, Kind: observed.Tool, Trace: model.Trace, Parent: model.ID, Run: model.Run, Agent: model.Agent, Service: model.Service,
			Call: id, Name: name, Began: model.Began, Ended: model.Began, Partial: model.Partial,
			ID: spanID(call.place, cmp.Or(id, model.ID+strconv.Itoa(i)), name)}
		// They ended before the model was called, in the order of the model's answer.
		span.EndedNS = model.BeganNS - int64(len(end.calls)-i)
		span.BeganNS = span.EndedNS
		if content != observed.None {
			span.Args, span.Result = call.args.json(), end.resultOf(id).json()
			span.Failed = saysError(span.Result)
		}
		if span.Failed {
			span.Error = otherError
		}
		spans = append(spans, span)
	}
	return spans
}

// spanID names a call in the place of the span that it does not have. Every later span of the model has the call at the same place
// of its history. An id of a call alone is no name, because local models use the same one again and again.
func spanID(place int, id, name string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s\x00%s", place, id, name))
	return hex.EncodeToString(sum[:8])
}

// resultOf returns the result of a call. Results without an id stand in the order of the calls without one.
func (t *told) resultOf(id string) value {
	for i, r := range t.results {
		if r.id.name() == id {
			if id == "" {
				t.results = slices.Delete(t.results, i, i+1)
			}
			return r.result
		}
	}
	return value{}
}

// add takes the next message of a history. It keeps neither of the lists.
func (t *told) add(place int, assistant bool, calls []toldCall, results []toldResult) {
	if assistant && t.answered {
		t.calls, t.results = t.calls[:0], t.results[:0]
	}
	t.answered = !assistant || len(results) > 0
	for _, call := range calls[:min(len(calls), mostTold-len(t.calls))] {
		call.place = place
		t.calls = append(t.calls, call)
	}
	t.results = append(t.results, results[:min(len(results), mostTold-len(t.results))]...)
}

// readList reads a list of messages in the form of the GenAI conventions.
func (t *told) readList(list *common.AnyValue) {
	text := []byte(list.GetStringValue())
	if len(text) == 0 {
		text = jsonOf(list)
	}
	if jsontext.Check(text) != nil {
		return
	}
	place := -1
	var calls []toldCall
	var results []toldResult
	jsontext.Elements(text, func(message []byte) bool {
		place++
		var role, parts []byte
		jsontext.Members(message, func(name string, value []byte) bool {
			switch name {
			case "role":
				role = value
			case "parts":
				parts = value
			}
			return true
		})
		calls, results = calls[:0], results[:0]
		jsontext.Elements(parts, func(part []byte) bool {
			calls, results = readPart(part, calls, results)
			return len(calls) < mostTold && len(results) < mostTold
		})
		t.add(place, string(role) == `"assistant"` || string(role) == `"model"` || len(calls) > 0, calls, results)
		return true
	})
}

// readPart reads a part of a message, if it is a call or a result.
func readPart(part []byte, calls []toldCall, results []toldResult) ([]toldCall, []toldResult) {
	var kind, id, name, args, result []byte
	jsontext.Members(part, func(key string, value []byte) bool {
		switch key {
		case "type":
			kind = value
		case "id":
			id = value
		case "name":
			name = value
		case "arguments":
			args = value
		case "response", "result": // the second is of earlier conventions
			result = value
		}
		return true
	})
	switch string(kind) {
	case `"tool_call"`:
		calls = append(calls, toldCall{id: value{text: id}, name: value{text: name}, args: value{text: args}})
	case `"tool_call_response"`:
		results = append(results, toldResult{id: value{text: id}, result: value{text: result}})
	}
	return calls, results
}

// readFlat reads the messages in the form of OpenInference: llm.input_messages.PLACE.message.NAME.
func (t *told) readFlat(flat []*common.KeyValue) {
	type message struct {
		role        string
		id, content *common.AnyValue
		calls       map[int]*toldCall
	}
	messages := map[int]*message{}
	for _, a := range flat {
		number, name, _ := strings.Cut(strings.TrimPrefix(a.GetKey(), flatInputMessages), ".message.")
		place, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		m := messages[place]
		if m == nil {
			m = &message{}
			messages[place] = m
		}
		switch name {
		case "role":
			m.role = textOf(a.GetValue())
		case "tool_call_id":
			m.id = a.GetValue()
		case "content":
			m.content = a.GetValue()
		case "contents.0.message_content.text":
			if m.content == nil {
				m.content = a.GetValue()
			}
		}
		number, name, is := strings.Cut(strings.TrimPrefix(name, "tool_calls."), ".tool_call.")
		n, err := strconv.Atoi(number)
		if !is || err != nil {
			continue
		}
		if m.calls == nil {
			m.calls = map[int]*toldCall{}
		}
		call := m.calls[n]
		if call == nil {
			call = &toldCall{}
			m.calls[n] = call
		}
		switch name {
		case "id":
			call.id = value{attribute: a.GetValue()}
		case "function.name":
			call.name = value{attribute: a.GetValue()}
		case "function.arguments":
			call.args = value{attribute: a.GetValue()}
		}
	}
	for _, place := range sorted(messages) {
		m := messages[place]
		var calls []toldCall
		for _, n := range sorted(m.calls) {
			calls = append(calls, *m.calls[n])
		}
		var results []toldResult
		if m.id != nil || m.role == "tool" || m.role == "function" {
			results = []toldResult{{value{attribute: m.id}, value{attribute: m.content}}}
		}
		t.add(place, m.role == "assistant" || m.role == "model" || len(calls) > 0, calls, results)
	}
}

func sorted[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// name returns a value that is a text in the form of a name, "" for any other value.
func (v value) name() string {
	if v.attribute != nil {
		return short(textOf(v.attribute))
	}
	var s string
	if len(v.text) > 6*maxText || len(v.text) == 0 || v.text[0] != '"' || json.Unmarshal(v.text, &s) != nil {
		return ""
	}
	return short(s)
}

// json returns a value as JSON, nil if there is none or if it is too long.
func (v value) json() ckpt.JSON {
	if v.attribute != nil {
		return jsonOf(v.attribute)
	}
	if len(v.text) == 0 || len(v.text) > ckpt.MaxValue {
		return nil
	}
	var inner string
	if v.text[0] == '"' && json.Unmarshal(v.text, &inner) == nil {
		inner = strings.TrimSpace(inner)
		if (strings.HasPrefix(inner, "{") || strings.HasPrefix(inner, "[")) && jsontext.Check([]byte(inner)) == nil {
			return ckpt.JSON(inner)
		}
	}
	return bytes.Clone(v.text)
}

// saysError reports whether the result of a call says that the call failed. A message has no other place for that.
func saysError(result ckpt.JSON) (failed bool) {
	if bytes.HasPrefix(result, []byte(`"Error:`)) {
		return true
	}
	jsontext.Members(result, func(name string, value []byte) bool {
		failed = (name == "is_error" || name == "isError") && string(value) == "true"
		return !failed
	})
	return failed
}
