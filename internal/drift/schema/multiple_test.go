package schema

import (
	"fmt"
	"testing"
)

// TestMultiplesAreThoseOfTheDecimals: 19.99 is a multiple of 0.01, although the binary fractions are not.
func TestMultiplesAreThoseOfTheDecimals(t *testing.T) {
	for _, c := range []struct {
		of, x float64
		ok    bool
	}{
		{0.01, 19.99, true}, {0.01, 4.35, true}, {0.1, 0.3, true}, {0.01, 1.005, false}, {0.1, -0.7, true}, {0.25, 1.1, false}, {2, 4, true}, {2, 5, false},
		{1e-8, 12391239123, true}, {0.123456789, 1e308, false}, {0.5, 1e308, true}, {1e-300, 1e308, true}, {3, 1e22, false}, {1.5, 0, true}, {1e300, 1e-300, false},
		{7, 9007199254740990, false}, {0.01, 90071992547409.93, true},
	} {
		s := schemaOf(t, fmt.Sprintf(`{"multipleOf":%v}`, c.of))
		found, _, _, err := s.Try(t.Context(), c.x, MaxWork)
		if err != nil || (len(found) == 0) != c.ok {
			t.Errorf("%v of %v: %v %v", c.x, c.of, found, err)
		}
	}
}
