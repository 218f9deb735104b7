package drift

import (
	"fmt"
	"strconv"
	"testing"
)

// TestNumberReadsHexadecimalDigits: reading 8 digits of a hash at once gives
// the same number as one by one.
func TestNumberReadsHexadecimalDigits(t *testing.T) {
	n := uint64(0x9e3779b97f4a7c15)
	for range 1000 {
		n = n*6364136223846793005 + 1442695040888963407
		for _, hash := range []string{fmt.Sprintf("%016x", n), fmt.Sprintf("%016X", n), fmt.Sprintf("%016x", n) + "00ff"} {
			if got := number(hash); got != n {
				t.Fatalf("number(%q) is %x, want %x", hash, got, n)
			}
		}
	}
	for hash, want := range map[string]uint64{"": 0, "0": 1, "0000000000000000": 1, "ff": 255, "123456789abcdef": 0x123456789abcdef} {
		if got := number(hash); got != want {
			t.Errorf("number(%s) is %x, want %x", strconv.Quote(hash), got, want)
		}
	}
}
