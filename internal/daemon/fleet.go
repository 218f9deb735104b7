package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

func (k *checking) fleet() {
	c := k.c
	k.between("fleet.interval", c.FleetInterval, 10*time.Millisecond, time.Hour)
	k.between("fleet.lease", c.FleetLease, 5*time.Second, 10*time.Minute)
	k.between("fleet.grace", c.FleetGrace, time.Second, 10*time.Minute)
	if c.FleetBatch < 64<<10 || c.FleetBatch > 256<<20 {
		k.bad("fleet.max_batch", "is %v: it must be between 64KiB and 256MiB", c.FleetBatch)
	}
	if c.FleetShip != fleet.ShipAll && c.FleetShip != fleet.ShipPolicy {
		k.bad("fleet.ship", "is %q: it must be all or policy", c.FleetShip)
	}
	if err := fleet.CheckIdentities(c.FleetPrincipals.names(), c.FleetRealms.names()); err != nil {
		k.bad("fleet.principals", "or fleet.realms is wrong: %v", err)
	}
	if len(c.FleetName) > 128 || strings.ContainsFunc(c.FleetName, func(r rune) bool { return !unicode.IsPrint(r) }) {
		k.bad("fleet.name", "must be at most 128 bytes long, without control characters")
	}
	if strings.Contains(c.FleetEngine, "://") {
		k.bad("fleet.engine_file", "is a URL: write the URL into a file that only the daemon may read, and name that file here; "+
			"the URL holds a password")
	} else {
		k.checkSecretFile("fleet.engine_file", c.FleetEngine)
	}
	k.checkSecretFile("fleet.key_file", c.FleetKeys)
}

// checkSecretFile refuses a value that names neither a file nor a credential.
func (k *checking) checkSecretFile(key, value string) {
	switch name, isCredential := strings.CutPrefix(value, host.Credential); {
	case value == "":
	case isCredential && (name == "" || strings.ContainsAny(name, `/\`)):
		k.bad(key, "names no credential: write credential:NAME, as in LoadCredential=NAME:FILE of the unit")
	case !isCredential && !filepath.IsAbs(value):
		k.bad(key, "is %q: give an absolute path, because a service has no working folder of its own", value)
	}
}

// Fleet returns the configuration of this host in its fleet.
func (c *Config) Fleet(env Environment, version string) host.Config {
	return host.Config{
		Name: c.hostName(), EngineFile: c.FleetEngine, KeyFile: c.FleetKeys, Users: c.fleetUsers(),
		Interval: time.Duration(c.FleetInterval), BatchBytes: int64(c.FleetBatch), ByPolicy: c.FleetShip == fleet.ShipPolicy,
		Lease: time.Duration(c.FleetLease), Grace: time.Duration(c.FleetGrace),
		Assume: c.FleetAssume, Env: env,
		Store: db.Options{
			Path: c.Database, Mode: os.FileMode(c.DatabaseMode), Retention: retention.Plan, Resume: resume.Make, Fits: drift.Fits,
			Version: version, WriteTimeout: time.Duration(c.WriteTimeout),
		},
	}
}

// hostName returns the name of this host in the fleet, for people.
func (c *Config) hostName() string {
	if c.FleetName != "" {
		return c.FleetName
	}
	name, _ := os.Hostname()
	return name
}

// fleetUsers returns the mapping of this host's users to principals of the fleet.
func (c *Config) fleetUsers() fleet.Identities {
	return fleet.Identities{Named: c.FleetPrincipals.names(), Realms: c.FleetRealms.names()}
}

// identityMap returns the mapping that is in use, for the audit log. It is "" if nothing
// is mapped.
func (c *Config) identityMap() string {
	if c.FleetPrincipals == "" && c.FleetRealms == "" {
		return ""
	}
	return fmt.Sprintf(`{"principals":%v,"realms":%v}`, c.FleetPrincipals, c.FleetRealms)
}

// tellIdentities records in the audit log which principals of the fleet this host's users
// are, if that has changed.
func (s *service) tellIdentities() error {
	return s.store.SetIdentityMap(s.daemon.Config.identityMap())
}

// renameUsers applies changed principals.
func (s *service) renameUsers() {
	if err := s.tellIdentities(); err != nil {
		s.log.Error("fleet.principals could not be noted in the audit log", "error", err)
	}
	s.fleet.SetUsers(s.daemon.Config.fleetUsers())
}

// startFleet starts shipping what this host commits, if an engine is set.
func (s *service) startFleet(ctx context.Context) {
	s.fleet = host.New(ctx, s.store, s.daemon.Config.Fleet(os.Getenv, s.daemon.Version), s.log)
	s.workers.Go(func() { s.fleet.Run(ctx) })
}
