package ckptsidecar_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

func TestTheTableOfTelemetryNamesIsDescribed(t *testing.T) {
	for _, path := range []string{"api/openapi.yaml", "docs/DRIFT.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range server.TelemetryNames {
			if !strings.Contains(string(text), n.Name) {
				t.Errorf("%s does not name %s", path, n.Name)
			}
		}
	}
}
