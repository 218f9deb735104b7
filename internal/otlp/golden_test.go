package otlp

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recorded is a minute after the spans of testdata were made.
var recorded = time.Unix(1_790_000_000, 0).UTC().Add(time.Minute)

// TestGoldenSpansOfEmitters: the bodies with a version in their names were recorded from that version of an emitter for Node; only
// their times were moved. The other spans of testdata were written by hand from the attributes that each emitter documents.
func TestGoldenSpansOfEmitters(t *testing.T) {
	bodies, err := filepath.Glob("testdata/*.json")
	if err != nil || len(bodies) < 7 {
		t.Fatalf("testdata has only %d bodies: %v", len(bodies), err)
	}
	for _, path := range bodies {
		if strings.HasSuffix(path, ".golden.json") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			body, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := shown(t, body, Options{Form: JSON, Content: observed.Keep, Now: recorded})
			golden := strings.TrimSuffix(path, ".json") + ".golden.json"
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s is read as\n%s\nand %s has\n%s", path, got, golden, want)
			}
			if bytes.Contains(got, []byte("PRIVATE")) || bytes.Contains(got, []byte("PROJECT")) {
				t.Error("what must never be kept was read")
			}
			if binary := shown(t, binaryOf(t, body), Options{Form: Binary, Content: observed.Keep, Now: recorded}); !bytes.Equal(binary, got) {
				t.Errorf("the binary form is read as\n%s\nand JSON as\n%s", binary, got)
			}
			none, err := Read(body, Options{Form: JSON, Content: observed.None, Now: recorded})
			if err != nil {
				t.Fatal(err)
			}
			for _, span := range none.Spans {
				if span.Args != nil || span.Result != nil {
					t.Errorf("content was read although it is to be left alone: %+v", span)
				}
			}
		})
	}
}

func binaryOf(t *testing.T, body []byte) []byte {
	t.Helper()
	request, err := decode(body, JSON)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func shown(t *testing.T, body []byte, o Options) []byte {
	t.Helper()
	batch, err := Read(body, o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(batch, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}
