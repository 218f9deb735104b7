package db_test

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// BenchmarkGraphPut measures one step of a conversation with three channels of
// 64 KiB that do not change.
func BenchmarkGraphPut(b *testing.B) {
	s, _ := open(b)
	still := make([]ckpt.GraphValue, 3)
	for i := range still {
		still[i] = ckpt.GraphValue{Channel: fmt.Sprint("still", i), GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`"` + strings.Repeat(fmt.Sprintf("%d words ", i), 8<<10) + `"`)}}
	}
	const message = `{"role":"user","content":"a message of some length, which is not the first one and will not be the last one either"}`
	messages := []byte("[" + message)
	parent := ckpt.Ref("")
	for n := 0; b.Loop(); n++ {
		if messages = append(messages[:len(messages):len(messages)], ","+message...); len(messages) > 100_000 {
			messages = []byte("[" + message)
		}
		id := fmt.Sprintf("%09d", n)
		r := &ckpt.GraphPut{Agent: "langgraph", GraphThread: root1, Parent: parent, Metadata: ckpt.JSON(`{"source":"loop","step":1,"parents":{}}`),
			Checkpoint: checkpointOf(id, fmt.Sprintf(`{"still0":1,"still1":1,"still2":1,"messages":%d}`, n)),
			Values:     []ckpt.GraphValue{{Channel: "messages", GraphBytes: ckpt.GraphBytes{Type: "json", Data: append(messages, ']')}}}}
		if parent == "" {
			r.Values = append(r.Values, still...)
		} else {
			r.Carry = []string{"still0", "still1", "still2"}
		}
		saved, err := s.GraphPut(b.Context(), ann, r)
		if err != nil || len(saved.Missing) > 0 {
			b.Fatal(saved, err)
		}
		parent = ckpt.Ref(id)
	}
}

// BenchmarkGraphGet reads such a checkpoint, the newest of its thread.
func BenchmarkGraphGet(b *testing.B) {
	s := &saver{b, nil, ann, "langgraph"}
	s.Store, _ = open(b)
	s.put(root1, "", "1", `{"a":1,"b":1,"c":1}`, channels{"a": `"` + strings.Repeat("one ", 16<<10) + `"`, "b": `"` + strings.Repeat("two ", 16<<10) + `"`, "c": `[1]`})
	for b.Loop() {
		s.get(root1, "")
	}
}
