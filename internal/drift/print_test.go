package drift

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

func printOfStep(tool, args, result, failure string) observer.StepPrint {
	s := ckpt.Step{Name: tool, Args: ckpt.JSON(args), Result: ckpt.JSON(result), Error: ckpt.Ref(failure), Status: ckpt.StepSucceeded}
	if failure != "" {
		s.Status = ckpt.StepFailed
	}
	return printOf(&s)
}

func TestSig(t *testing.T) {
	same := printOfStep("a", `{"x":1,"y":[true,null]}`, "", "").Sig
	if len(same) != 32 {
		t.Errorf("a sig is %q", same)
	}
	for _, args := range []string{"{ \"y\" : [ true, null ], \"x\" : 1.0 }", `{"x":10e-1,"\u0079":[true,null]}`} {
		if got := printOfStep("a", args, "", "").Sig; got != same {
			t.Errorf("%s is another call", args)
		}
	}
	for _, other := range [][2]string{{"b", `{"x":1,"y":[true,null]}`}, {"a", `{"x":1,"y":[null,true]}`}, {"a", `{"x":2,"y":[true,null]}`}, {"a", ""}, {"a", `{"x":9007199254740993}`}} {
		if printOfStep(other[0], other[1], "", "").Sig == same {
			t.Errorf("%s is the same call", other)
		}
	}
	if printOfStep("a", "", "", "").Sig != printOfStep("a", "null", "", "").Sig {
		t.Error("no arguments are not null")
	}
}

func TestRes(t *testing.T) {
	for _, none := range []string{"", "null", `""`, `" "`, "[]", "{}", `[""]`, `"\u001b[0m"`} {
		if got := printOfStep("a", "", none, ""); got.Res != "" {
			t.Errorf("the result %s says something: %s", none, got.Res)
		}
	}
	if printOfStep("a", "", "", "broken").Res == "" {
		t.Error("an error is not the outcome of a step without a result")
	}
	for _, result := range []string{"0", "false", `"x"`, "[0]", `{"a":null}`} {
		if len(printOfStep("a", "", result, "").Res) != 32 {
			t.Errorf("the result %s says nothing", result)
		}
	}
	for _, pair := range [][2]string{
		{`{"b":1,"a":"x\n"}`, `{"a": "x\n", "b": 1}`},
		{`{"at":"2026-11-21T10:00:00Z","n":1}`, `{"at":"2026-11-21T10:00:09Z","n":1}`},
		{`"\u001b[31mno\u001b[0m"`, `"no"`},
		{`{"took":"12ms"}`, `{"took":"1.5ms"}`},
	} {
		if printOfStep("a", "", pair[0], "").Res != printOfStep("a", "", pair[1], "").Res {
			t.Errorf("%s and %s are not the same result", pair[0], pair[1])
		}
	}
}

// TestCause: two calls with the same trouble have the same error signature, and
// others do not.
func TestCause(t *testing.T) {
	type call struct{ tool, args, result, failure string }
	refused := call{"fetch", `{"url":"http://a.example/one"}`, "", "connection refused: http://a.example/one (attempt 1)"}
	for _, test := range []struct {
		name string
		a, b call
		same bool
	}{
		{"its own words", refused, call{"fetch", `{"url":"http://b.example/two"}`, "", "connection refused: http://b.example/two (attempt 7)"}, true},
		{"its tool", call{"search", `"x"`, `["Error: search service unavailable (HTTP 503)."]`, ""}, call{"read_file", `"y"`, `"Error: read_file service unavailable (HTTP 503)."`, ""}, true},
		{"quotes", call{"run", "1", "", "can't open 'one.txt': no such file"}, call{"run", "2", "", "can't open 'two.txt': no such file"}, true},
		{"wrapped", call{"a", "1", `{"content":[{"type":"text","text":"quota exceeded, try again"}],"isError":true}`, ""}, call{"b", "2", `"{\"content\":[{\"type\":\"text\",\"text\":\"quota exceeded, try again\"}],\"isError\":true}"`, ""}, true},
		{"other trouble", refused, call{"fetch", `{"url":"http://a.example/one"}`, "", "certificate expired: http://a.example/one"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := printOfStep(test.a.tool, test.a.args, test.a.result, test.a.failure).Cause
			b := printOfStep(test.b.tool, test.b.args, test.b.result, test.b.failure).Cause
			if a == "" || b == "" || (a == b) != test.same {
				t.Errorf("the causes are %q and %q", a, b)
			}
		})
	}
	for _, fine := range []string{
		`"done"`, `"no results for 'x'"`, `{"error":null,"n":1}`, `{"success":true}`, `"the retry policy is set; timeout is 30"`,
		`"` + strings.Repeat("a long document that speaks of errors and says try again ", 10) + `"`,
	} {
		if got := printOfStep("a", "1", fine, ""); got.Cause != "" {
			t.Errorf("%.60s is taken for a complaint", fine)
		}
	}
}

func TestUnparsable(t *testing.T) {
	for result, want := range map[string]bool{
		`"{\"a\": 1}"`: false, `"{\"a\": "`: true, `"[{\"a\": 1}"`: true, `["{\"a\": [}"]`: true,
		`{"content":[{"text":"{\"a\" 1}"}]}`: true, `"[\"{\\\"a\\\": }\"]"`: true, `"[\"{\\\"a\\\": 1}\"]"`: false, `"{\"a\":1}\n{\"a\":2}\n"`: false, `"{\"a\":1}\n{\"a\""`: true,
		`"[INFO] started"`: false, `"[1234] pid"`: false, `"{not json}"`: false, `"{'a': 1}"`: false, `"{"`: false, `""`: false, `"[]"`: false,
		`"{\"a\": [1, 2, ... and more"`: false, `"{\"a\": \"cut [truncated]"`: false, `{"a": 1}`: false, `"  [\"a\", "`: true, ``: false,
	} {
		if got := printOfStep("a", "", result, "").Unparsable; got != want {
			t.Errorf("%s: unparsable is %v", result, got)
		}
	}
}

// FuzzPrint: every result gets a print.
func FuzzPrint(f *testing.F) {
	f.Add(`{"a":1}`, `"Error: \u001b[0m x"`, "boom")
	f.Add(`[`, `{"error":{"a":[[["x"]]]}}`, "")
	f.Add(` `, ` `, "")
	f.Fuzz(func(t *testing.T, args, result, failure string) {
		print := printOfStep("tool", args, result, failure)
		if print.Sig != observer.UnknownCall && len(print.Sig) != 32 || len(print.Res) != 0 && len(print.Res) != 32 || len(print.Cause) != 0 && len(print.Cause) != 16 {
			t.Errorf("%+v", print)
		}
		if again := printOfStep("tool", args, result, failure); again.Sig != print.Sig || again.Res != print.Res || again.Cause != print.Cause {
			t.Error("the same step has two prints")
		}
	})
}
