//go:build planted && linux

package faulttest

import (
	"os"
	"testing"
)

// buildTags are those of the program under test: the same as of the tests.
const buildTags = "planted"

// TestPlanted is the harness's own proof, and half of F10: this is run with a
// mistake in the program, and must fail.
func TestPlanted(t *testing.T) {
	find := map[string]func(*testing.T){
		"early":     func(t *testing.T) { killNine(t, 10, func(*load) {}) },
		"normal":    func(t *testing.T) { t.Run("replay", tornWrites); t.Run("ext4", powerLosses) },
		"keys":      func(t *testing.T) { killNine(t, 10, func(*load) {}) },
		"fence":     func(t *testing.T) { killNine(t, 2, func(*load) {}) },
		"retention": func(t *testing.T) { killNine(t, 2, func(*load) {}) },
		"hash":      func(t *testing.T) { damageAtRest(t) },
	}[os.Getenv(plantedVariable)]
	if find == nil {
		t.Skip(plantedVariable + " chooses a planted mistake")
	}
	find(t)
}
