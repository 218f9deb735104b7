package daemon

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// TestIdentityMap: the audit log records the changes of the identity map, and
// nothing else.
func TestIdentityMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	c := Config{FleetRealms: `{"acme":"uid:200000-299999"}`}
	rows := func() (list []string) {
		s, err := db.Open(t.Context(), db.Options{Path: path, Retention: retention.Plan, Resume: resume.Make, Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := (&service{daemon: &Daemon{Config: c}, store: s}).tellIdentities(); err != nil {
			t.Fatal(err)
		}
		if err := s.RO.Select(&list, `SELECT detail FROM audit_log WHERE action = 'set_principals' AND who = 'daemon' ORDER BY n`); err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := rows(); len(got) != 1 || !strings.Contains(got[0], "uid:200000-299999") {
		t.Errorf("the first start notes %q", got)
	}
	if got := rows(); len(got) != 1 {
		t.Errorf("a start that changes nothing notes %q", got)
	}
	if err := c.FleetPrincipals.UnmarshalText([]byte(`{"uid:1000":"acme/build"}`)); err != nil {
		t.Fatal(err)
	}
	if got := rows(); len(got) != 2 || !strings.Contains(got[1], "acme/build") {
		t.Errorf("a new entry notes %q", got)
	}
	c = Config{}
	if got := rows(); len(got) != 3 || !json.Valid([]byte(got[2])) || strings.Contains(got[2], "acme") {
		t.Errorf("a map that went notes %q", got)
	}
}

// TestFleetIdentitySettings reads the tables of the settings file, and refuses
// settings that would make one user out of two.
func TestFleetIdentitySettings(t *testing.T) {
	config := func(fleet string) (c Config, err error) {
		c = Default(false, func(string) string { return "" })
		c.Database, c.Socket = "/x/ckpt.db", "/x/sock"
		err = c.parse("file.toml", "[fleet]\n"+fleet)
		return c, err
	}
	c, err := config(`principals = { "uid:1000" = "acme/build" }` + "\n" + `realms = { acme = "uid:200000-299999" }`)
	if err != nil {
		t.Fatal(err)
	}
	ids := c.fleetUsers()
	if a, b := ids.Principal("uid:1000"), ids.Principal("uid:200001"); a != "acme/build" || b != "acme/uid:200001" {
		t.Errorf("the principals are %s and %s", a, b)
	}
	if err := c.Check(); err != nil && strings.Contains(err.Error(), "fleet") {
		t.Errorf("settings that are right are refused: %v", err)
	}
	c, err = config(`principals = { "uid:1" = "acme/a", "uid:2" = "acme/a" }`)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "file.toml:2: the setting fleet.principals") || !strings.Contains(err.Error(), "both acme/a") {
		t.Errorf("two users on one principal are told %v", err)
	}
	if _, err = config(`principals = { "uid:1" = 5 }`); err == nil || !strings.Contains(err.Error(), "object of texts") {
		t.Errorf("a number is told %v", err)
	}
}
