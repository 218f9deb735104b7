package lease_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
)

// TestBoottime: the clock, which nobody can set, counts from the start of the
// machine and not from 1970. Only a machine that slept would show a difference
// from CLOCK_MONOTONIC.
func TestBoottime(t *testing.T) {
	before := lease.Boottime()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip(err)
	}
	after := lease.Boottime()
	seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	up := time.Duration(seconds * float64(time.Second))
	if up < before-time.Second || up > after+time.Second {
		t.Errorf("the clock says %v to %v, and the machine is up for %v", before, after, up)
	}
}
