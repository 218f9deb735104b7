package console

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// TestTheTranscriptOfARun reads a run of a real daemon step by step.
func TestTheTranscriptOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ref := ckpt.RunRef{Agent: "coder", Run: "one"}
	w.save("coder", "one", `{"n": 1}`)
	for i := range 120 {
		r := ckpt.StepRequest{Key: fmt.Sprintf("step/%03d", i), Name: "read_file", Args: ckpt.JSON(`{"path":"a.py"}`), Status: ckpt.StepSucceeded, Result: ckpt.JSON(`"line one\nline two"`)}
		if i%40 == 39 {
			r.Status, r.Result, r.Error = ckpt.StepFailed, nil, "2 tests failed: test_total, test_empty"
		}
		if i == 119 {
			r.Args = ckpt.JSON(`"` + strings.Repeat("x", 5000) + `END"`)
		}
		if _, _, err := w.client.BeginStep(t.Context(), ref, r); err != nil {
			t.Fatal(err)
		}
	}
	at := "o/" + w.owner + "/coder/one"
	want := func(path string, has []string, not []string) {
		t.Helper()
		page := unescaped(w.page(path))
		for _, text := range has {
			if !strings.Contains(page, text) {
				t.Errorf("%s has no %q: %s", path, text, page)
			}
		}
		for _, text := range not {
			if strings.Contains(page, text) {
				t.Errorf("%s has %q", path, text)
			}
		}
	}
	want(at+"/steps", []string{"step/119", "step/070", "line one\nline two", `{"path":"a.py"}`, "2 tests failed: test_total", "/steps?before=step%2F070", "data-follow", "all of it"}, []string{"step/069", "Later steps", "END"})
	want(at+"/steps?before=step%2F070", []string{"step/069", "step/020", "/steps?after=step%2F069", "Newest steps"}, []string{"step/070<", "data-follow"})
	want(at+"/steps?at=step%2F040", []string{`id="` + draw.StepID("step/040") + `" class="chosen"`, "Earlier steps", "Later steps"}, []string{"step/039<"})
	want(at+"/steps?whole&at=step%2F119", []string{"xEND", "one step"}, []string{"step/118", "all of it"})
	want(at+"/steps?hide=ok", []string{"Failures by cause", `<td class="r">3</td>`, "step/039", "step/079"}, []string{"step/038"})
	want(at, []string{`/steps?at=step%2F100#` + draw.StepID("step/100") + `"`, at + `/steps?hide=ok">3 failed</a>`, "<title>read_file: succeeded</title>", "<title>read_file: failed: 2 tests failed"}, nil)
	want(at+"?as=table", []string{stepPath("/"+strings.Join(strings.Split(w.base, "/")[1:3], "/")+"/"+at, "step/100")}, nil)
}

// TestSecretsOfStepsAreMasked: a value that a finding names as a secret is hidden until a person asks for it.
func TestSecretsOfStepsAreMasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ref := ckpt.RunRef{Agent: "coder", Run: "one"}
	w.save("coder", "one", `{"n": 1}`)
	const secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"
	for i, args := range []string{`{"token":"` + secret + `","path":"a.py"}`, `{"token":"` + secret + `","path":"` + strings.Repeat("y", 3000) + `"}`} {
		if _, _, err := w.client.BeginStep(t.Context(), ref, ckpt.StepRequest{Key: fmt.Sprint("s", i), Name: "call", Args: ckpt.JSON(args), Status: ckpt.StepSucceeded}); err != nil {
			t.Fatal(err)
		}
	}
	at := "o/" + w.owner + "/coder/one/steps"
	if page := w.page(at); strings.Contains(page, secret) || !strings.Contains(page, "a.py") || !strings.Contains(page, "a secret is masked") {
		t.Errorf("the secret is not masked: %s", page)
	}
	if page := w.page(at + "?show=secrets"); strings.Count(page, secret) < 2 {
		t.Errorf("the secret is not shown: %s", page)
	}
}
