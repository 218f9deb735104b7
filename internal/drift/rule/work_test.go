package rule

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter/metertest"
)

// TestRuleWorkIsPaidFor: every loop of the rule language is charged for its
// work.
func TestRuleWorkIsPaidFor(t *testing.T) {
	long := strings.Repeat("k", 1_000_000)
	names := map[string]any{"state": decoded([]byte(`{"l":` + metertest.Many("[", 20_000, func(i int) string { return fmt.Sprint(i) }, "]") +
		`,"s":"` + long + `","o":{"` + long + `":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1},"t":` + metertest.Many("[", 20_000, metertest.Always(`"aaaaaaa"`), "]") +
		`,"k":` + metertest.Many("{", 20, func(i int) string { return fmt.Sprintf(`"%s%d":%d`, long[:50_000], i, i) }, "}") +
		`,"m":` + metertest.Many("{", 2000, func(i int) string { return fmt.Sprintf(`"k%d":%d`, i, i) }, "}") + `}`))}
	var costs []metertest.UnitCost
	for _, when := range []string{
		"all(state.l, # >= 0)",
		"all(state.l, state.o[state.s] == 1)",
		"all(state.l, state.s in state.o)",
		"all(state.l, len(keys(state.k)) == 20)",
		"all(state.l, len(keys(state.m)) == 2000)",
		"all(state.l, state.m == state.m)",
		"all(state.t, # matches '(a?){400}c' or true)",
		"all(state.l, state.s matches '^k+$')",
		"all(state.l, lower(state.s) != '')",
		"all(state.l, len(state.s) > 1)",
		"all(state.l, !(state.s contains 'b'))",
		"all(state.l, (state.s + 'x') != '')",
		"all(state.l, state.s <= state.s)",
		"all(state.l, !(-1 in state.l))",
		"all(state.l, len([1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]) == 20)",
		"let a = 1; let b = 2; let c = 3; let d = 4; let e = 5; let f = 6; let g = 7; let h = 8; all(state.l, a + a + a + a + a + a > 0)",
		"len(map(state.l, map(state.l, #))) > 0",
	} {
		r, err := compile(ckpt.Rule{Name: "mine", When: when, Severity: ckpt.SeverityWarn}, knownMembers(nil), allPatterns())
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		costs = append(costs, metertest.UnitOf(when, func() int {
			_, _, left, err := r.holds(t.Context(), names, MaxWork)
			if err != nil {
				t.Fatal(err)
			}
			return MaxWork - left
		}))
	}
	metertest.JudgeUnits(t, costs)
}
