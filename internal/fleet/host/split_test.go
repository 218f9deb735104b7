package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestOlderCopy replaces a host's database with an older copy. The host ships nothing. It begins with an empty
// database, claims what the engine has of it, and its former id is forgotten.
func TestOlderCopy(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openFleetStore(t, path)
	ships := func(state string) (err error) {
		t.Helper()
		if err := saveOne(s, t, "main", state); err != nil {
			t.Fatal(err)
		}
		ship := shipperOf(s, url, "host")
		defer func() { ship.hangUp(); err = errors.Join(err, s.Close()) }()
		return ship.once(t.Context())
	}
	must := failsOn(t)
	must(ships(`{"n":1}`))
	old, err := os.ReadFile(path)
	must(err)
	s = openFleetStore(t, path)
	must(ships(`{"n":2}`))
	for _, suffix := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + suffix)
	}
	must(os.WriteFile(path, old, 0o600))
	s = openFleetStore(t, path)
	if err := ships(`{"n":"other"}`); !errors.Is(err, errSplit) || !strings.Contains(err.Error(), "fleet claim --host HOST --all") {
		t.Fatalf("with an older copy shipping answers %v", err)
	}
	if got := server.Rows("fleet", `SELECT seq FROM fleet_runs`); len(got) != 1 || got[0] != "2" {
		t.Errorf("the engine has %q", got)
	}

	silent(server)
	fresh := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	if done, refused := claimAll(t, url, fresh, "", nil); len(done) != 1 || len(refused) > 0 {
		t.Fatalf("claimed are %+v, refused %v", done, refused)
	}
	latest, err := fresh.Latest(t.Context(), fleetUser, ckpt.CheckpointFilter{Agent: "a", Run: "main", Kind: ckpt.KindRoutine}, true)
	if err != nil || string(latest.State) != `{"n":2}` {
		t.Errorf("what the engine had comes back as %v, %v", latest, err)
	}
	ship := shipperOf(fresh, url, "host")
	defer ship.hangUp()
	again(t, ship)
	silent(server)
	if _, err := Forget(t.Context(), url, s.ID, false); err != nil {
		t.Errorf("the former id is not forgotten: %v", err)
	}
	again(t, ship)
	if got := server.Rows("fleet", `SELECT host, seq FROM fleet_runs`); len(got) != 1 || got[0] != fresh.ID+" 2" {
		t.Errorf("in the end the engine has %q", got)
	}
}
