package doctor

import (
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// TestFleetFindings: doctor warns if nothing is shipped, and if it is shipped
// in the clear.
func TestFleetFindings(t *testing.T) {
	for _, c := range []struct {
		s    fleet.Status
		want string
	}{
		{fleet.Status{Name: "a", State: fleet.StateShipping, Keys: []string{"1"}}, ""},
		{fleet.Status{Name: "a", State: fleet.StateShipping, Clear: true}, "in the clear"},
		{fleet.Status{Name: "a", State: fleet.StateConnecting, Clear: true}, ""}, // the keys were not read yet
		{fleet.Status{Name: "a", State: fleet.StateShipping, Noticed: []string{"b", "c"}}, "as these hosts noticed: b, c; no host claims by itself"},
		{fleet.Status{Name: "a", State: fleet.StateSplit, Error: "two pasts"}, "split: two pasts"},
	} {
		var warned []string
		for _, f := range fleetFindings(&c.s) {
			if f.Level == levelWarn {
				warned = append(warned, f.What)
			}
		}
		if got := strings.Join(warned, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, clear %v, warns %q, want %q", c.s.State, c.s.Clear, got, c.want)
		}
	}
}
