package client_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

type node struct {
	Name string `json:"name"`
	Next *node  `json:"next,omitempty"`
}

type broken struct{}

func (broken) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

type inner struct {
	A int
	B string `json:"b"`
}

type outer struct {
	inner
	*node  `json:"node"`
	B      int     `json:"b"`
	Weight float64 `json:"weight,string"`
	Empty  []int   `json:"empty,omitempty"`
	Hidden func()  `json:"-"`
	Bad    float64
}

func TestEncodeTakesOutWhatJSONCannotHold(t *testing.T) {
	ring := &node{Name: "a"}
	ring.Next = &node{Name: "b", Next: ring}
	loop := map[string]any{"x": 1}
	loop["self"] = loop
	list := []any{1, nil}
	list[1] = list
	shared := &node{Name: "shared"}
	for name, c := range map[string]struct {
		value   any
		want    string
		removed []string
	}{
		"plain":     {map[string]any{"b": 1, "a": "<&>"}, `{"a":"<&>","b":1}`, nil},
		"ring":      {ring, `{"name":"a","next":{"name":"b","next":null}}`, []string{"/next/next"}},
		"map":       {loop, `{"self":null,"x":1}`, []string{"/self"}},
		"list":      {list, `[1,null]`, []string{"/1"}},
		"twice":     {[]any{shared, shared, math.NaN()}, `[{"name":"shared"},{"name":"shared"},null]`, []string{"/2"}},
		"numbers":   {map[string]any{"n": math.NaN(), "i": math.Inf(-1), "ok": 1.5}, `{"i":null,"n":null,"ok":1.5}`, []string{"/i", "/n"}},
		"kinds":     {map[string]any{"a/b": make(chan int), "f": func() {}, "c~": complex(1, 2)}, `{"a/b":null,"c~":null,"f":null}`, []string{"/a~1b", "/c~0", "/f"}},
		"text":      {[]string{"ok", "bad\xff"}, "[\"ok\",\"bad\ufffd\"]", []string{"/1"}},
		"surrogate": {"real \ufffd", "\"real \ufffd\"", nil},
		"own":       {[]any{broken{}, 1}, `[null,1]`, []string{"/0"}},
		"time":      {[]any{time.Unix(0, 0).UTC(), []byte("hi"), uint64(math.MaxUint64), func() {}}, `["1970-01-01T00:00:00Z","aGk=",18446744073709551615,null]`, []string{"/3"}},
		"struct":    {outer{B: 2, Weight: 1.5, Bad: math.NaN()}, `{"A":0,"node":null,"b":2,"weight":"1.5","Bad":null}`, []string{"/Bad"}},
		"int keys":  {map[int]any{2: math.NaN(), 1: 1}, `{"1":1,"2":null}`, []string{"/2"}},
	} {
		state, removed, err := client.Encode(c.value)
		slices.Sort(removed)
		if err != nil || string(state) != c.want || !slices.Equal(removed, c.removed) {
			t.Errorf("%s: %s %v, %v; want %s %v", name, state, removed, err, c.want, c.removed)
		}
	}
}

// TestEncodeIsEncodingJSON compares the fallback encoder with encoding/json for
// values that have only one bad place.
func TestEncodeIsEncodingJSON(t *testing.T) {
	good := outer{inner: inner{A: 1, B: "hidden"}, node: &node{Name: "n"}, B: 2, Weight: 3, Bad: 4}
	whole, err := json.Marshal([]any{good, nil})
	must(t, err)
	walked, removed, err := client.Encode([]any{good, math.NaN()})
	if err != nil || string(walked) != string(whole) || len(removed) != 1 {
		t.Errorf("%s, want %s, %v", walked, whole, err)
	}
}

func TestStrictRefuses(t *testing.T) {
	t.Parallel()
	c := newDaemon(t).open(t)
	_, err := c.Agent("a").Save(t.Context(), []any{math.NaN()}, client.SaveOptions{Strict: true})
	if ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), "/0") {
		t.Errorf("%v", err)
	}
}
