package otlp

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// Limits on what is read of a span.
const (
	maxAttributes = 128
	future        = 5 * time.Minute // how far a clock can be wrong
	past          = 7 * 24 * time.Hour
)

// Options say how to read a body.
type Options struct {
	Form    Form
	Content observed.Content
	Now     time.Time
}

// Batch is the content of a body.
type Batch struct {
	Spans   []observed.Span // the spans that mean something, including structure, and the calls that messages tell of
	All     int
	Ignored int
	Refused int
	Why     string // the reason of the first refusal
	told    int    // so many of Spans are calls that messages tell of
}

// Read decodes a body and translates its spans. It returns errors about the whole body,
// and counts spans that it refuses.
func Read(body []byte, o Options) (*Batch, error) {
	request, err := decode(body, o.Form)
	if err != nil {
		return nil, err
	}
	batch := new(Batch)
	for _, r := range request.ResourceSpans {
		service := serviceOf(r)
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				batch.add(span, service, &o)
			}
		}
	}
	batch.takeExecutions(request.ResourceSpans)
	return batch, nil
}

// takeExecutions gives to the calls the failures of their executions. Both spans end in the same moment, and come in one body.
func (b *Batch) takeExecutions(resources []*trace.ResourceSpans) {
	failed := map[string]string{} // the error by the trace and the span of the call
	for _, r := range resources {
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if s.GetName() == executionSpan && s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR {
					kind := short(textOf(find(s.Attributes[:min(len(s.Attributes), maxAttributes)], "error.type")))
					failed[hex.EncodeToString(s.TraceId)+hex.EncodeToString(s.ParentSpanId)] = cmp.Or(kind, exceptionOf(s))
				}
			}
		}
	}
	for i := range b.Spans {
		s := &b.Spans[i]
		if why, is := failed[s.Trace+s.ID]; is && s.Kind == observed.Tool && !s.Failed {
			s.Failed, s.Error = true, why
		}
	}
}

func serviceOf(r *trace.ResourceSpans) string {
	for _, a := range r.GetResource().GetAttributes() {
		if a.GetKey() == "service.name" {
			return short(textOf(a.GetValue()))
		}
	}
	return ""
}

func (b *Batch) add(s *trace.Span, service string, o *Options) {
	b.All++
	attributes, messages := splitFlat(s.GetAttributes())
	read, known, err := translate(s, attributes, service, o)
	switch {
	case err != "":
		if b.Refused++; b.Why == "" {
			b.Why = err
		}
	case !known:
		b.Ignored++
	default:
		b.Spans = append(b.Spans, read)
		if read.Kind == observed.Inference && b.told < maxTold {
			calls := callsTold(&read, find(attributes, inputMessages), messages, o.Content)
			b.told += len(calls)
			b.Spans = append(b.Spans, calls...)
		}
	}
}

// translate reads one span. If it refuses the span, it returns why.
func translate(s *trace.Span, attributes []*common.KeyValue, service string, o *Options) (read observed.Span, known bool, why string) {
	if s == nil {
		return read, false, ""
	}
	if len(s.TraceId) != 16 || isZero(s.TraceId) || len(s.SpanId) != 8 || isZero(s.SpanId) || len(s.ParentSpanId) != 0 && len(s.ParentSpanId) != 8 {
		return read, false, "A span has no trace id of 16 bytes, or no span id of 8."
	}
	many := len(attributes) > maxAttributes
	attributes = attributes[:min(len(attributes), maxAttributes)]
	root := isZero(s.ParentSpanId)
	read.Kind = kindOf(s, attributes, root)
	if read.Kind == "" && root {
		read.Kind = observed.Structure // its end says that the trace is complete
	}
	if read.Kind == "" {
		return read, false, ""
	}
	began, ended := timeOf(s.StartTimeUnixNano), timeOf(s.EndTimeUnixNano)
	if why := checkTimes(began, ended, o.Now); why != "" {
		return read, false, why
	}
	if ended.Before(began) {
		ended = began
	}
	read.Trace, read.ID = hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId)
	if !root {
		read.Parent = hex.EncodeToString(s.ParentSpanId)
	}
	read.Began, read.Ended, read.Service = ckpt.At(began), ckpt.At(ended), service
	read.BeganNS, read.EndedNS = began.UnixNano(), ended.UnixNano()
	read.Partial = s.DroppedAttributesCount > 0 || many || sampled(s.TraceState)
	for i := range fields {
		if field := &fields[i]; applies(field, s, attributes, read.Kind) {
			take(&read, field, attributes, o.Content)
		}
	}
	for _, event := range s.Events[:min(len(s.Events), maxAttributes)] {
		if read.Kind == observed.Tool && event.GetName() == outputEvent {
			takeContent(&read.Result, &spanField{Names: []string{outputName}}, event.Attributes[:min(len(event.Attributes), maxAttributes)], o.Content)
		}
	}
	if read.Kind == observed.Tool && read.Name == "" {
		read.Name = short(strings.TrimPrefix(s.Name, "execute_tool "))
	}
	if read.Failed = read.Failed || read.Error != "" || s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR; read.Failed && read.Error == "" {
		read.Error = exceptionOf(s)
	}
	return read, true, ""
}

// kindOf returns the kind of a span, "" for none.
func kindOf(s *trace.Span, attributes []*common.KeyValue, root bool) observed.Kind {
	for i := range marks {
		mark := &marks[i]
		if mark.Root && !root {
			continue
		}
		text := s.Name
		if mark.Attribute != "" {
			text = textOf(find(attributes, mark.Attribute))
		}
		if text != "" && slices.ContainsFunc(mark.Values, func(pattern string) bool { return fits(text, pattern) }) {
			return mark.Kind
		}
	}
	return ""
}

// fits reports whether a text matches a pattern, in which * stands for any text.
func fits(text, pattern string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return text == pattern
	}
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(text, part)
		}
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text, rest = text[at+len(part):], more
	}
}

func applies(f *spanField, s *trace.Span, attributes []*common.KeyValue, kind observed.Kind) bool {
	return (f.Of == "" || f.Of == kind) && strings.HasPrefix(s.Name, f.Name) &&
		(f.Mark == "" || textOf(find(attributes, "openinference.span.kind")) == f.Mark)
}

// take reads a field, unless an earlier row of the table has set it.
func take(s *observed.Span, f *spanField, attributes []*common.KeyValue, content observed.Content) {
	switch f.Field {
	case "run":
		if session := textOf(first(f, attributes)); session != "" {
			s.Run = ckpt.RunOfSession(session)
		}
	case "root_agent":
		s.RootAgent = takeText(s.RootAgent, f, attributes)
	case "agent":
		s.Agent = takeText(s.Agent, f, attributes)
	case "call":
		s.Call = takeText(s.Call, f, attributes)
	case "name":
		s.Name = takeText(s.Name, f, attributes)
	case "error":
		s.Error = takeText(s.Error, f, attributes)
	case "success":
		value := first(f, attributes)
		said, is := value.GetValue().(*common.AnyValue_BoolValue)
		s.Failed = is && !said.BoolValue || textOf(value) == "false"
	case "args":
		takeContent(&s.Args, f, attributes, content)
	case "result":
		takeContent(&s.Result, f, attributes, content)
	case "input_tokens":
		takeCount(&s.InputTokens, f, attributes)
	case "output_tokens":
		takeCount(&s.OutputTokens, f, attributes)
	case "cost_usd":
		if x, is := numberOf(first(f, attributes)); is && x >= 0 && s.CostUSD == nil {
			s.CostUSD = &x
		}
	}
}

func takeText(had string, f *spanField, attributes []*common.KeyValue) string {
	if had != "" {
		return had
	}
	return short(textOf(first(f, attributes)))
}

func takeContent(had *ckpt.JSON, f *spanField, attributes []*common.KeyValue, content observed.Content) {
	if content == observed.None || *had != nil {
		return
	}
	if value := first(f, attributes); value != nil {
		*had = jsonOf(value)
	}
}

// maxCount is more than anyone uses, and small enough to be added up many times.
const maxCount = 1e12

func takeCount(had **int64, f *spanField, attributes []*common.KeyValue) {
	if *had != nil {
		return
	}
	var sum float64
	known := false
	for _, name := range f.Names {
		x, is := numberOf(find(attributes, name))
		if !is || x < 0 || x > maxCount {
			continue
		}
		sum, known = sum+x, true
		if !f.Sum {
			break
		}
	}
	if known {
		n := int64(sum)
		*had = &n
	}
}

// first returns the value of the first of a field's attributes that exists.
func first(f *spanField, attributes []*common.KeyValue) *common.AnyValue {
	for _, name := range f.Names {
		if value := find(attributes, name); value != nil {
			return value
		}
	}
	return nil
}

func find(attributes []*common.KeyValue, name string) *common.AnyValue {
	for _, a := range attributes {
		if a.GetKey() == name {
			return a.GetValue()
		}
	}
	return nil
}

// exceptionOf returns the type of the exception that a span reports. If the type is not
// known, it returns OpenTelemetry's word for that. It never reads the message.
func exceptionOf(s *trace.Span) string {
	for _, event := range s.Events[:min(len(s.Events), maxAttributes)] {
		if event.GetName() != "exception" {
			continue
		}
		attributes := event.Attributes[:min(len(event.Attributes), maxAttributes)]
		if kind := short(textOf(find(attributes, "exception.type"))); kind != "" {
			return kind
		}
	}
	return otherError
}

// otherError is OpenTelemetry's word for an error whose type is not known.
const otherError = "_OTHER"

// sampled reports whether the emitter leaves out spans: then tracestate has a
// threshold.
func sampled(state string) bool {
	for member := range strings.SplitSeq(state, ",") {
		vendor, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		if vendor != "ot" {
			continue
		}
		for part := range strings.SplitSeq(value, ";") {
			if threshold, is := strings.CutPrefix(part, "th:"); is && strings.Trim(threshold, "0") != "" {
				return true
			}
		}
	}
	return false
}

func timeOf(nanoseconds uint64) time.Time {
	if nanoseconds == 0 || nanoseconds > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, int64(nanoseconds)).UTC()
}

func checkTimes(began, ended, now time.Time) string {
	switch {
	case ended.IsZero() || began.IsZero():
		return "A span has no start or no end."
	case ended.After(now.Add(future)) || began.After(now.Add(future)):
		return fmt.Sprintf("A span is more than %s in the future: check the clock of its host.", future)
	case ended.Before(now.Add(-past)):
		return fmt.Sprintf("A span is older than %d days.", int(past.Hours())/24)
	}
	return ""
}

func isZero(id []byte) bool { return len(bytes.Trim(id, "\x00")) == 0 }

// short returns a name in the form in which it is kept: printable, and not too long.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), 2*maxText)], "\ufffd"))
	s = strings.TrimSpace(s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}
