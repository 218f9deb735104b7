//go:build linux

package faulttest

import (
	"os"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/faulttest/mutants"
)

// TestPlanted is one half of F10. It runs in a build with a planted mistake,
// and must fail.
func TestPlanted(t *testing.T) {
	if os.Getenv(mutants.OverlayVariable) == "" {
		t.Skip("F10 runs this in builds with a planted mistake")
	}
	for name, test := range map[string]func(*testing.T){
		"kill -9 fast":   func(t *testing.T) { killNine(t, 30, func(l *load) { l.pause = 0 }) },
		"kill -9 long":   killed(10),
		"kill -9":        killed(2),
		"replay":         tornWrites,
		"ext4":           powerLosses,
		"flipped bits":   damageAtRest,
		"changed pieces": func(t *testing.T) { damagedPieces(t, 2) },
	} {
		t.Run(name, test)
	}
}

func killed(rounds int) func(*testing.T) {
	return func(t *testing.T) { killNine(t, rounds, func(*load) {}) }
}
