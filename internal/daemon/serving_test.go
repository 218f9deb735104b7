package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// TestMistakesInSettingsAreForAdministrators: the words of a mistake can have a value of the settings, such as a
// password in a URL. Only administrators see settings.
func TestMistakesInSettingsAreForAdministrators(t *testing.T) {
	store, err := db.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: retention.Plan})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	wrong := func() (Config, error) {
		return Config{}, errors.New(`notify.url "https://kim:pass@example.org" is wrong`)
	}
	v := &served{Service: store, service: &service{daemon: &Daemon{Load: wrong}, store: store, worker: &retention.Worker{Guard: retention.NewGuard(retention.GuardSettings{})}}}
	st, err := v.Status(t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1001"}})
	if err != nil || st.State != "ready" || len(st.Problems) != 0 {
		t.Errorf("another user sees %s, %q, %v", st.State, st.Problems, err)
	}
}
