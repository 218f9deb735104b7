package db_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// TestCallsThatMessagesTellOfAreSteps: emitters that make no spans of tools write calls and results into the messages of later spans
// of models. However the recorded spans come, each call is one step.
func TestCallsThatMessagesTellOfAreSteps(t *testing.T) {
	t.Parallel()
	for _, emitter := range []string{
		"openinference-openai-4.2.7", "openinference-openai-4.2.7-responses", "openinference-anthropic-0.2.8", "traceloop-openai-0.27.0",
	} {
		for name, send := range map[string]func(*observing, []observed.Span){
			"at once":      func(o *observing, spans []observed.Span) { o.send(spans...); o.send(spans...) },
			"one by one":   func(o *observing, spans []observed.Span) { sendEach(o, spans, func() {}) },
			"with a pause": func(o *observing, spans []observed.Span) { sendEach(o, spans, o.settle) },
		} {
			t.Run(emitter+" "+name, func(t *testing.T) {
				o := openObserving(t)
				spans := o.golden(emitter)
				send(o, spans)
				o.settle()
				s := o.look("trip", spans[0].Trace)
				var got []string
				for _, step := range s.Steps {
					got = append(got, fmt.Sprint(step.Name, " ", step.Status, " ", step.Error))
					if step.DurationMS != nil || !strings.HasPrefix(step.Key, "call:") || step.StartedAt.After(step.EndedAt.Time) {
						t.Errorf("%+v", step)
					}
				}
				if diff := cmp.Diff([]string{"get_weather succeeded ", "get_weather succeeded ", "book_hotel failed _OTHER"}, got); diff != "" {
					t.Error(diff)
				}
				if len(s.Steps) == 3 && (s.Steps[0].Turn != s.Steps[1].Turn || s.Steps[1].Turn == s.Steps[2].Turn) {
					t.Errorf("the turns are %s, %s and %s", s.Steps[0].Turn, s.Steps[1].Turn, s.Steps[2].Turn)
				}
				if tokens := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT input_tokens, output_tokens FROM runs; SELECT count(*) FROM spans WHERE said IS NOT NULL`); tokens != "153|21\n0" && name == "at once" {
					t.Errorf("tokens, and spans that wait: %s", tokens)
				}
			})
		}
	}
}

func sendEach(o *observing, spans []observed.Span, between func()) {
	for _, span := range spans {
		o.send(span)
		between()
	}
}

// toldSpan is the nth call of a trace that the messages of a model tell of. They are read when the model is called.
func toldSpan(trace string, n int, change ...func(*observed.Span)) observed.Span {
	s := toolSpan(trace, n, change...)
	s.Told, s.Ended = true, s.Began
	s.EndedNS = s.BeganNS
	return s
}

// TestCallsWithSpansAreNotDoubled: a call that has a span is not a second step where messages tell of it too.
func TestCallsWithSpansAreNotDoubled(t *testing.T) {
	t.Parallel()
	call := func(id string) func(*observed.Span) { return func(s *observed.Span) { s.Call = id } }
	told := func(id string) func(*observed.Span) {
		return func(s *observed.Span) { s.Call, s.ID, s.Parent = id, "00000000000000e"+id, fmt.Sprintf("%016x", 31) }
	}
	model := modelSpan("a", 0)
	for name, c := range map[string]struct {
		spans []observed.Span
		want  int
	}{
		"no span":                        {[]observed.Span{toldSpan("a", 30, told("1"))}, 1},
		"the same id":                    {[]observed.Span{toolSpan("a", 5, call("1")), toldSpan("a", 30, told("1"))}, 1},
		"no id, and the same name":       {[]observed.Span{toolSpan("a", 5), toldSpan("a", 30, told("1"))}, 1},
		"no ids, and two of one name":    {[]observed.Span{toolSpan("a", 5), toolSpan("a", 7), toldSpan("a", 30, told("1")), toldSpan("a", 30, told("2"))}, 2},
		"one of two has a span":          {[]observed.Span{toolSpan("a", 5, call("1")), toldSpan("a", 30, told("1")), toldSpan("a", 30, told("2"))}, 2},
		"no id, and another name":        {[]observed.Span{toolSpan("a", 5, func(s *observed.Span) { s.Name = "write" }), toldSpan("a", 30, told("1"))}, 2},
		"the id in an earlier turn":      {[]observed.Span{toolSpan("a", 5, call("1")), modelSpan("a", 10), toldSpan("a", 30, told("1"))}, 2},
		"the name in an earlier turn":    {[]observed.Span{toolSpan("a", 5), modelSpan("a", 10), toldSpan("a", 30, told("1"))}, 2},
		"the span is read later":         {[]observed.Span{toldSpan("a", 30, told("1")), toolSpan("a", 5, call("1"))}, 1},
		"told twice in two of its spans": {[]observed.Span{toldSpan("a", 30, told("1")), toldSpan("a", 40, told("1"))}, 1},
	} {
		for _, pause := range []bool{false, true} {
			o := openObserving(t)
			o.send(model)
			for _, span := range c.spans {
				if pause {
					o.settle()
				}
				o.send(span)
			}
			o.settle()
			if s := o.look("shop", strings.Repeat("a", 32)); len(s.Steps) != c.want {
				t.Errorf("%s, pause %t: %d steps, not %d", name, pause, len(s.Steps), c.want)
			}
		}
	}
}

// TestCallsAreToldOnceInAConversation: each call of a model can be a trace of its own. A call that two of them tell of, because the
// model was asked again, is one step of their conversation.
func TestCallsAreToldOnceInAConversation(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	talk := func(s *observed.Span) {
		s.Run, s.Call, s.ID, s.Parent = "talk", "call_1", "00000000000000e1", strings.Repeat(s.Trace[:1], 16)
	}
	o.send(toldSpan("a", 1, talk), toldSpan("b", 2, talk))
	o.settle()
	o.send(toldSpan("c", 3, talk), toldSpan("d", 4, talk, func(s *observed.Span) { s.ID = "00000000000000e2" })) // the same id at another place
	o.settle()
	s := o.look("shop", "talk")
	if len(s.Steps) != 2 || s.Steps[0].Turn == "" || s.Steps[0].Turn == s.Steps[1].Turn {
		t.Errorf("%+v", s.Steps)
	}
}

// TestToldCallsAreSeenByTheDetectors: a loop that only messages tell of is found.
func TestToldCallsAreSeenByTheDetectors(t *testing.T) {
	t.Parallel()
	o := openObserving(t)
	for n := range 6 {
		o.send(toldSpan("a", 10*n, func(s *observed.Span) {
			s.Args, s.Result = ckpt.JSON(`{"q":"x"}`), ckpt.JSON(`"Error: no such file"`)
			failing(s)
		}), modelSpan("a", 10*n+1))
	}
	o.clock.add(time.Minute)
	o.again()
	if s := o.look("shop", strings.Repeat("a", 32)); !slices.ContainsFunc(s.Findings, func(f string) bool { return strings.HasPrefix(f, "error_streak") }) {
		t.Errorf("%d steps, %q", len(s.Steps), s.Findings)
	}
}

// TestContentOfRecordedSpansIsKeptAsSet: what Claude Code writes into full_command and its event, and what messages tell of calls, is
// in the files only if content is to be kept.
func TestContentOfRecordedSpansIsKeptAsSet(t *testing.T) {
	t.Parallel()
	for emitter, words := range map[string][]string{
		"claude-code-2.1.332":        {"mkdir -p build", "rm -rf build src.txt", "b.txt"},
		"openinference-openai-4.2.7": {"Paris", "no room is free"},
		"traceloop-openai-0.27.0":    {"Paris", "no room is free"},
	} {
		body, err := os.ReadFile("../otlp/testdata/" + emitter + ".json")
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range observed.Contents {
			o := openObserving(t)
			batch, err := otlp.Read(body, otlp.Options{Form: otlp.JSON, Content: content, Now: o.clock.Now()})
			if err == nil {
				_, err = o.Observe(t.Context(), ann, batch.Spans, content)
			}
			if err != nil {
				t.Fatal(err)
			}
			var files []byte
			for range 2 { // while they wait, and as steps
				for _, name := range []string{"", "-wal"} {
					file, err := os.ReadFile(pathOf(o.Store) + name)
					if err != nil {
						t.Fatal(err)
					}
					files = append(files, file...)
				}
				o.settle()
			}
			for _, word := range words {
				if kept := bytes.Contains(files, []byte(word)); kept != (content == observed.Keep) {
					t.Errorf("%s, content %s: %q is in the files: %t", emitter, content, word, kept)
				}
			}
			if steps := sqlite3(t, "-readonly", pathOf(o.Store), `SELECT count(*) >= 3 FROM steps`); steps != "1" {
				t.Errorf("%s, content %s: there are too few steps", emitter, content)
			}
		}
	}
}
