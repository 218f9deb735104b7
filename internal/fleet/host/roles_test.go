package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// rights returns the statements of examples/fleet/rights.sql without the line that makes psql stop
// at the first error.
func rights(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../examples/fleet/rights.sql")
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), "\n\\set ON_ERROR_STOP on\n")
	if !found || strings.Contains(before, "\nDO ") {
		t.Error("rights.sql does not make psql stop at the first error")
	}
	return before + "\n" + after
}

// TestFleetRoles gives each host a separate role, as examples/fleet/rights.sql does. The hosts ship, claim and
// erase as before, and cannot write the rows of another host.
func TestFleetRoles(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	text := rights(t)
	for range 2 { // the script can run again
		server.Exec("fleet", text)
	}
	storeA, storeB := openFleetStore(t, filepath.Join(t.TempDir(), "a.db")), openFleetStore(t, filepath.Join(t.TempDir(), "b.db"))
	as := func(role, db string) string {
		server.Exec("fleet", `CREATE ROLE `+role+` LOGIN IN ROLE ckpt_hosts`)
		server.Exec("fleet", `INSERT INTO fleet_roles (role, db) VALUES ('`+role+`', '`+db+`')`)
		return strings.Replace(url, "postgres@", role+"@", 1)
	}
	urlA, urlB := as("ckpt_a", storeA.ID), as("ckpt_b", storeB.ID)
	if r, err := Check(t.Context(), urlA); err != nil || !r.Good() {
		t.Fatalf("the check answers %+v, %v", r, err)
	}
	a, b := shipperOf(storeA, urlA, "a"), shipperOf(storeB, urlB, "b")
	defer a.hangUp()
	defer b.hangUp()
	work(t, storeA)
	again(t, a)
	again(t, b)
	t.Run("what is another host's", func(t *testing.T) {
		of := ` db = '` + storeA.ID + `'`
		for _, do := range []string{
			`UPDATE fleet_audit SET hash = 'x' WHERE` + of, `UPDATE fleet_audit SET texts = NULL WHERE` + of,
			`UPDATE fleet_checkpoints SET doc = 'x' WHERE` + of, `DELETE FROM fleet_checkpoints WHERE` + of, `DELETE FROM fleet_segments WHERE` + of,
			`UPDATE fleet_rows SET doc = 'x'`, `DELETE FROM fleet_rows`, `DELETE FROM fleet_runs`, `DELETE FROM fleet_agents`, `UPDATE fleet_claims SET from_hash = 'x'`,
			`DELETE FROM fleet_marks`, `DELETE FROM fleet_audit`, `UPDATE fleet_roles SET db = 'x'`,
			`UPDATE fleet_marks SET mark_n = 1 WHERE` + of, `UPDATE fleet_marks SET forgotten = clock_timestamp() WHERE` + of, `UPDATE fleet_hosts SET lease_until = clock_timestamp() WHERE` + of,
			`UPDATE fleet_runs SET doc = 'x'`, `UPDATE fleet_agents SET principal = 'acme/me'`,
			`INSERT INTO fleet_audit SELECT db, n + 1000, at, who, action, owner, agent, run, outcome, v, doc, texts, hash, key_id FROM fleet_audit WHERE` + of,
			`INSERT INTO fleet_erased (uid, db, n) SELECT uid, '` + storeA.ID + `', 1 FROM fleet_runs`,
		} {
			if n, err := server.Try(urlB, do); err == nil && n > 0 {
				t.Errorf("host b may %s: %d rows", do, n)
			}
		}
		if n, err := server.Try(urlA, `UPDATE fleet_rows SET doc = doc`); err != nil || n == 0 {
			t.Errorf("host a may not change its own rows: %d, %v; this test sees nothing", n, err)
		}
	})
	if _, err := claimantOf(storeB, urlB, "b").Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: "uid:1001", Force: true}); err != nil {
		t.Fatal(err)
	}
	again(t, b)
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_runs WHERE host = '`+storeB.ID+`'`); got[0] != "1" {
		t.Errorf("host b has %s runs", got[0])
	}
	if err := saveOne(storeB, t, "fresh", `{}`); err != nil {
		t.Fatal(err)
	}
	again(t, b)
	if _, err := storeB.Erase(t.Context(), fleetUser, "a"); err != nil {
		t.Fatal(err)
	}
	again(t, b)
	again(t, a)
	again(t, a)
	if got := server.Rows("fleet", `SELECT owner FROM fleet_runs`); len(got) != 1 || got[0] != "uid:1002" {
		t.Errorf("after the erasure the engine has the runs of %q", got)
	}
}
