package host

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// TestFleetVerify: verify finds each kind of damage that the test plants in the engine, and finds none before.
func TestFleetVerify(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	keys := keyFile(t)
	c := configOf(filepath.Join(t.TempDir(), "one.db"), "one", keys)
	one := openFleetStore(t, c.Store.Path)
	two := openFleetStore(t, filepath.Join(t.TempDir(), "two.db"))
	work(t, one)
	if err := saveOne(one, t, "sealed", `{"a":1}`); err != nil {
		t.Fatal(err)
	}
	a, b := shipperOf(one, url, "one"), shipperOf(two, url, "two")
	a.keys = keysIn(c.KeyFile)
	defer a.hangUp()
	defer b.hangUp()
	again(t, a)
	if _, err := (&claimant{url: a.url, store: two, host: b.host, who: b.identities, keys: a.keys, turns: newTurns(), log: slog.New(slog.DiscardHandler)}).Claim(t.Context(), fleetAdmin,
		fleet.ClaimRequest{Agent: "a", Run: "main", Owner: "uid:1001", Force: true}); err != nil {
		t.Fatal(err)
	}
	again(t, b) // this one ships in the clear
	again(t, a)
	verify := func(c Config) *fleet.Verified {
		t.Helper()
		steps := int64(0)
		v, err := Verify(t.Context(), url, c, func(done, total int64) { steps = done })
		if err != nil {
			t.Fatal(err)
		}
		if steps != v.Runs {
			t.Errorf("the progress ends at %d of %d runs", steps, v.Runs)
		}
		return v
	}
	v := verify(c)
	if len(v.Problems) != 0 || v.Hosts != 2 || v.Claims != 1 || v.Runs != 3 || v.Compared == 0 || v.Unopened != 0 || v.Checkpoints < 3 {
		t.Fatalf("an engine that is whole answers %+v", v)
	}
	c.KeyFile = ""
	if v := verify(c); len(v.Problems) != 0 || v.Unopened == 0 {
		t.Fatalf("without the key it answers %+v", v)
	}
	c.KeyFile = keyFile(t)
	if v := verify(c); len(v.Problems) != 0 || v.Unopened == 0 {
		t.Fatalf("with another key it answers %+v", v)
	}
	c.KeyFile = ""
	plantEach(t, server, func() *fleet.Verified { return verify(c) }, clearDamages)
	c.KeyFile = keys
	plantEach(t, server, func() *fleet.Verified { return verify(c) }, sealedDamages)
}

// damage is one kind of planted damage: a statement, the statement that undoes it, and the expected problem.
type damage struct{ do, undo, rule, says string }

var clearDamages = []damage{
	{`DELETE FROM fleet_audit WHERE n = 3 AND db = (SELECT db FROM fleet_hosts WHERE name = 'one')`, "audit", "chain", "rows 3 to 3 are missing before it"},
	{`DELETE FROM fleet_audit WHERE n >= (SELECT mark_n FROM fleet_marks m WHERE m.db = fleet_audit.db) AND db = (SELECT db FROM fleet_hosts WHERE name = 'one')`, "audit", "chain", "are missing"},
	{`UPDATE fleet_audit SET hash = repeat('0', 64) WHERE n = 2 AND db = (SELECT db FROM fleet_hosts WHERE name = 'one')`, "audit", "chain", "is not that of the same row of this host's audit log"},
	{`UPDATE fleet_marks SET mark_hash = repeat('0', 64) WHERE db = (SELECT db FROM fleet_hosts WHERE name = 'two')`, "marks", "chain", "not that of the mark"},
	{`UPDATE fleet_audit SET hash = 'x' WHERE n = 1 AND db = (SELECT db FROM fleet_hosts WHERE name = 'two')`, "audit", "chain", "is no hash"},
	{`UPDATE fleet_claims SET from_hash = repeat('0', 64)`, "claims", "claim", "does not fit row"},
	{`UPDATE fleet_claims SET term = 2`, "claims", "claim", "has term 1, and its last claim gave 2"},
	{`UPDATE fleet_checkpoints SET sha = repeat('0', 64) WHERE key_id IS NULL`, "checkpoints", "checkpoint", "checkpoint"},
	{`DELETE FROM fleet_segments WHERE key_id IS NULL`, "segments", "checkpoint", "missing"},
	{`UPDATE fleet_segments SET data = 'x' WHERE key_id IS NULL`, "segments", "checkpoint", "checkpoint"},
	{`UPDATE fleet_rows SET doc = '{' WHERE key_id IS NULL AND kind = 'step'`, "rows", "row", "no JSON"},
	{`UPDATE fleet_runs SET doc = '{' WHERE key_id IS NULL`, "runs", "run", "no JSON"},
	{`UPDATE fleet_agents SET doc = '{' WHERE key_id IS NULL`, "agents", "agent", "no JSON"},
	{`DELETE FROM fleet_runs WHERE run = 'sealed'`, "runs", "orphan", "it is not there"},
	{`DELETE FROM fleet_agents WHERE key_id IS NULL`, "agents", "orphan", "1 runs belong to it"},
}

var sealedDamages = []damage{
	{`UPDATE fleet_checkpoints SET sha = repeat('0', 64) WHERE key_id IS NOT NULL`, "checkpoints", "checkpoint", "seal is broken"},
	{`UPDATE fleet_checkpoints SET body = set_byte(body, 50, 256 - 1 - get_byte(body, 50)) WHERE key_id IS NOT NULL AND body IS NOT NULL`, "checkpoints", "checkpoint", "seal is broken"},
	{`UPDATE fleet_runs SET doc = (SELECT doc FROM fleet_agents WHERE key_id IS NOT NULL LIMIT 1) WHERE run = 'sealed'`, "runs", "run", "seal is broken"},
	{`UPDATE fleet_agents SET doc = doc || 'AAAA' WHERE key_id IS NOT NULL`, "agents", "agent", "seal is broken"},
	{`UPDATE fleet_audit SET texts = (SELECT o.texts FROM fleet_audit o WHERE o.key_id IS NOT NULL AND o.n = 2) WHERE key_id IS NOT NULL AND n = 3`, "audit", "chain", "seal is broken"},
}

func plantEach(t *testing.T, server *pgtest.Server, verify func() *fleet.Verified, damages []damage) {
	t.Helper()
	for _, d := range damages {
		table := "fleet_" + d.undo
		server.Exec("fleet", `CREATE TABLE aside AS SELECT * FROM `+table)
		server.Exec("fleet", d.do)
		v := verify()
		ok := false
		for i := range v.Problems {
			ok = ok || v.Problems[i].Rule == d.rule && strings.Contains(v.Problems[i].String(), d.says)
		}
		if !ok {
			t.Errorf("%s is not found as %s with %q: %+v", d.do, d.rule, d.says, v.Problems)
		}
		server.Exec("fleet", `DELETE FROM `+table)
		server.Exec("fleet", `INSERT INTO `+table+` SELECT * FROM aside`)
		server.Exec("fleet", `DROP TABLE aside`)
	}
	if v := verify(); len(v.Problems) != 0 {
		t.Errorf("after all was put back there are %+v", v.Problems)
	}
}
