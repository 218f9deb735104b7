package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// credential stands before the name of a credential of systemd.
const credential = "credential:"

// mostURL is more than any URL of an engine has.
const mostURL = 16 << 10

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
	switch name, isCredential := strings.CutPrefix(c.FleetEngine, credential); {
	case c.FleetEngine == "":
	case strings.Contains(c.FleetEngine, "://"):
		k.bad("fleet.engine_file", "is a URL: write the URL into a file that only the daemon may read, and name that file here; the URL holds a password")
	case isCredential && (name == "" || strings.ContainsAny(name, `/\`)):
		k.bad("fleet.engine_file", "names no credential: write credential:NAME, as in LoadCredential=NAME:FILE of the unit")
	case !isCredential && !filepath.IsAbs(c.FleetEngine):
		k.bad("fleet.engine_file", "is %q: give an absolute path, because a service has no working folder of its own", c.FleetEngine)
	}
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
	path := c.FleetEngine
	if name, is := strings.CutPrefix(path, credential); is {
		folder := env("CREDENTIALS_DIRECTORY")
		if folder == "" {
			return "", fmt.Errorf("fleet.engine_file is %s, and systemd handed over no credentials: add LoadCredential=%s:FILE to the unit", path, name)
		}
		path = filepath.Join(folder, name)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("the engine's URL cannot be read: %w", err)
	}
	if info.Size() > mostURL {
		return "", fmt.Errorf("%s is no file with the URL of an engine: it has %d bytes", path, info.Size())
	}
	if why := openToOthers(info.Mode()); why != "" && path == c.FleetEngine {
		return "", fmt.Errorf("%s holds a password, and %s: chmod 600 it", path, why)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the engine's URL cannot be read: %w", err)
	}
	url := strings.TrimSpace(string(text))
	if err := pg.CheckURL(url); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return url, nil
}
