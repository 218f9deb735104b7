package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// TestSpansThatFailWithoutAWordAreNegative: a tool whose span failed without a
// message gave a negative answer, like a search that found nothing. A tool with
// an error message, or with an unknown result, has failed.
func TestSpansThatFailWithoutAWordAreNegative(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result, failure string
		want            bool // whether error_streak is found
	}{
		"a search that found nothing": {`""`, "", false},
		"its exit code was 1":         {`{"exit_code":1,"stdout":""}`, "1", false},
		"it says what went wrong":     {`"grep: no such file"`, "", true},
		"its error has a name":        {`""`, "TimeoutError", true},
		"nobody knows what it said":   {``, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := openObserving(t)
			spans := []observed.Span{rootSpan("a", 20)}
			for n := range 6 {
				spans = append(spans, toolSpan("a", n, func(s *observed.Span) {
					s.Args, s.Result, s.Failed, s.Error = ckpt.JSON(fmt.Sprintf(`{"q":%d}`, n)), ckpt.JSON(test.result), true, test.failure
				}))
			}
			o.send(spans...)
			o.settle()
			s := o.look("shop", strings.Repeat("a", 32))
			if got := slices.ContainsFunc(s.Findings, func(f string) bool { return strings.HasPrefix(f, "error_streak") }); got != test.want || len(s.Steps) != 6 {
				t.Errorf("%d steps, %q", len(s.Steps), s.Findings)
			}
		})
	}
}
