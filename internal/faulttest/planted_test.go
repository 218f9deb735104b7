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
	find := map[string]map[string]func(*testing.T){
		"early":     {"kill -9": func(t *testing.T) { killNine(t, 30, func(l *load) { l.pause = 0 }) }},
		"normal":    {"replay": tornWrites, "ext4": powerLosses},
		"keys":      {"kill -9": killed(10)},
		"fence":     {"kill -9": killed(2)},
		"retention": {"kill -9": killed(2)},
		"hash":      {"flipped bits": damageAtRest},
	}[os.Getenv(plantedVariable)]
	if find == nil {
		t.Skip(plantedVariable + " chooses a planted mistake")
	}
	for name, test := range find {
		t.Run(name, test)
	}
}

func killed(rounds int) func(*testing.T) {
	return func(t *testing.T) { killNine(t, rounds, func(*load) {}) }
}
