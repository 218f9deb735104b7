package drift

import (
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// TestNumbersOfAnySizeAreJSON: a number that floating point cannot hold is a number to the schema, and does not keep the
// rules from seeing the state.
func TestNumbersOfAnySizeAreJSON(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.Schema = ckpt.JSON(`{"properties":{"n":{"type":"integer","minimum":4,"maximum":1e300},"a":{"multipleOf":5}}}`)
	ruled("state.n > 3 && state.a > 3 && step.result.m < 0")(&p)
	last := &ckpt.Step{Result: ckpt.JSON(`{"m":-1e999}`)}
	for number, want := range map[string]string{
		"7": "mine", "1e400": "mine, schema /n is more than 1e+300", "1" + strings.Repeat("0", 400): "mine, schema /n is more than 1e+300", "-1e400": "schema /n is less than 4",
	} {
		state := []byte(`{"n":` + number + `,"a":5,"list":[` + number + `]}`)
		print, err := New().State(t.Context(), &p, observer.RuleRun{Last: last}, state, nil, ckpt.ContentTypeJSON)
		var got []string
		for _, f := range print.Broken {
			what := f.Rule
			if _, place, is := strings.Cut(f.Message, "1 place: "); is {
				what += " " + strings.TrimSuffix(place, ".")
			}
			got = append(got, what)
		}
		if slices.Sort(got); err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%.10s: %q %v", number, got, err)
		}
	}
	if err := Fits(t.Context(), ckpt.JSON(`{"type":"number"}`), ckpt.JSON(`1e400`)); err != nil {
		t.Error(err)
	}
}
