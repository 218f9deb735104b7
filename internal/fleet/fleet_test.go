package fleet_test

import (
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

func TestCompare(t *testing.T) {
	head := fleet.Mark{N: 10, Hash: "j"}
	for name, c := range map[string]struct {
		engine, word fleet.Mark
		here         string
		want         fleet.Standing
	}{
		"a new engine":                 {want: fleet.InStep},
		"up to date":                   {engine: head, word: head, here: "j", want: fleet.InStep},
		"behind, and nobody says more": {engine: fleet.Mark{N: 4, Hash: "d"}, here: "d", want: fleet.InStep},
		"its row is archived":          {engine: fleet.Mark{N: 4, Hash: "d"}, want: fleet.InStep},
		"it had more":                  {engine: fleet.Mark{N: 4, Hash: "d"}, word: fleet.Mark{N: 6, Hash: "f"}, here: "d", want: fleet.WentBack},
		"it had all and has nothing":   {word: fleet.Mark{N: 6, Hash: "f"}, want: fleet.WentBack},
		"another past":                 {engine: fleet.Mark{N: 4, Hash: "x"}, here: "d", want: fleet.Split},
		"it has what we have not":      {engine: fleet.Mark{N: 11, Hash: "k"}, want: fleet.Split},
	} {
		if got := fleet.Compare(c.engine, c.word, head, c.here); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTerms(t *testing.T) {
	for epoch, term := range map[int64]int64{1: 0, 1<<20 - 1: 0, 1<<20 | 1: 1, fleet.FirstEpoch(7): 7, fleet.FirstEpoch(7) + 5: 7} {
		if got := fleet.TermOf(epoch); got != term {
			t.Errorf("epoch %d has term %d, want %d", epoch, got, term)
		}
	}
}

func TestPace(t *testing.T) {
	p := fleet.Pace{Floor: 100 * time.Millisecond, Most: time.Second}
	for _, want := range []time.Duration{200, 400, 800, 1000, 1000} {
		if got := p.Failed(); got != want*time.Millisecond {
			t.Errorf("the pause is %v, want %d ms", got, want)
		}
	}
	if p.Done() != p.Floor || p.Failed() != 2*p.Floor {
		t.Error("what was shipped does not end the waiting")
	}
}

func TestProfilesAndDurability(t *testing.T) {
	for version, want := range map[string]string{
		"PostgreSQL 15.8 (Debian)":          fleet.ProfilePostgres,
		"CockroachDB CCL v24.1.0":           fleet.ProfileCockroach,
		"PostgreSQL 11.2-YB-2.20.1.0-b0 on": fleet.ProfileYugabyte,
	} {
		if got := fleet.ProfileOf(version); got != want {
			t.Errorf("%s is %s", version, got)
		}
	}
	alone := &fleet.Report{How: "no standby"}
	if may, _ := alone.Durable(false); may {
		t.Error("an engine without a standby answers for fleet durability")
	}
	if may, why := alone.Durable(true); !may || why == "" {
		t.Error("who takes the blame is not asked, or not told")
	}
	if may, _ := (&fleet.Report{Replicated: true, Problems: []string{"x"}}).Durable(true); may {
		t.Error("an engine with problems answers for fleet durability")
	}
}
