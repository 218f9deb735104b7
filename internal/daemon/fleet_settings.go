package daemon

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// credential stands before the name of a credential of systemd.
const credential = "credential:"

func (k *checking) fleet() {
	c := k.c
	k.between("fleet.interval", c.FleetInterval, 10*time.Millisecond, time.Hour)
	k.between("fleet.lease", c.FleetLease, 5*time.Second, 10*time.Minute)
	k.between("fleet.grace", c.FleetGrace, time.Second, 10*time.Minute)
	if c.FleetBatch < 64<<10 || c.FleetBatch > 256<<20 {
		k.bad("fleet.max_batch", "is %v: it must be between 64KiB and 256MiB", c.FleetBatch)
	}
	if err := fleet.CheckIdentities(c.FleetPrincipals.names(), c.FleetRealms.names()); err != nil {
		k.bad("fleet.principals", "or fleet.realms is wrong: %v", err)
	}
	if len(c.FleetName) > 128 {
		k.bad("fleet.name", "must be at most 128 bytes long")
	}
	if strings.Contains(c.FleetEngine, "://") {
		k.bad("fleet.engine_file", "is a URL: write the URL into a file that only the daemon may read, and name that file here; the URL holds a password")
	} else {
		k.checkSecretFile("fleet.engine_file", c.FleetEngine)
	}
	k.checkSecretFile("fleet.key_file", c.FleetKeys)
}

// HostName is the name of this host in the fleet, for people.
func (c *Config) HostName() string {
	if c.FleetName != "" {
		return c.FleetName
	}
	name, _ := os.Hostname()
	return name
}

// EngineURL reads where the fleet's engine is. No error of it shows the URL.
func (c *Config) EngineURL(env Environment) (string, error) {
	if c.FleetEngine == "" {
		return "", fmt.Errorf("no engine is set: name the file with its URL as fleet.engine_file, see docs/FLEET.md")
	}
	path, text, err := secretFile(env, "fleet.engine_file", c.FleetEngine, "the engine's URL")
	if err != nil {
		return "", err
	}
	url := strings.TrimSpace(text)
	if err := pg.CheckURL(url); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return url, nil
}
