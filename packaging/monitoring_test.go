package packaging

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"
)

// metricsOf returns the metrics that a file of this folder uses.
func metricsOf(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`ckptsidecar_[a-z0-9_]+`).FindAllString(string(text), -1)
	slices.Sort(found)
	return slices.Compact(found)
}

// TestDashboardsAskForMetricsThatThereAre compares the metrics that the
// dashboard and the alert rules use with the names in the daemon's source.
func TestDashboardsAskForMetricsThatThereAre(t *testing.T) {
	there := map[string]bool{}
	for _, name := range []string{"../internal/daemon/metrics.go", "../internal/fleet/host/metrics.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:counted|measured)\("([a-z0-9_]+)"|"(ckptsidecar_[a-z0-9_]+)"`).FindAllStringSubmatch(string(source), -1) {
			if m[1] != "" {
				there["ckptsidecar_"+m[1]] = true
			}
			there[m[2]] = true
		}
	}
	for _, name := range []string{"prometheus/ckptsidecar.rules.yml", "grafana/ckptsidecar.json"} {
		asked := metricsOf(t, name)
		if len(asked) < 10 {
			t.Errorf("%s asks for %d metrics only", name, len(asked))
		}
		for _, metric := range asked {
			if !there[metric] {
				t.Errorf("%s asks for %s, which the daemon does not have", name, metric)
			}
		}
	}
}

// TestTheDashboardIsOne checks the parts of the dashboard that Grafana needs.
func TestTheDashboardIsOne(t *testing.T) {
	text, err := os.ReadFile("grafana/ckptsidecar.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title, UID    string
		SchemaVersion int
		Panels        []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion == 0 {
		t.Errorf("%+v", d)
	}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if len(p.Targets) == 0 || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %s: %+v", p.Title, p)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
