package host

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Config says how a host takes part in a fleet. Its values must have been checked.
type Config struct {
	Name       string           // of this host, for people
	EngineFile string           // the file with the engine's URL, or the name of a credential; "" for no fleet
	KeyFile    string           // the file with the keys that seal what is shipped, or a credential; "" for none
	Users      fleet.Identities // which principals the users of this host are; New fills in DB and Machine
	Interval   time.Duration    // the shortest time between two batches
	BatchBytes int64            // the approximate size of a batch
	ByPolicy   bool             // only agents whose policies ask for the fleet are shipped
	Lease      time.Duration
	Grace      time.Duration // how much longer than another host's lease this host waits before it claims
	Assume     bool          // the engine replicates, whatever it says

	Env   func(name string) string // tells in which folder systemd puts credentials
	Store db.Options               // how Verify opens the database; a Member uses the time limit
}

// host returns this host as it registers with the engine, under the id of its database.
func (c *Config) host(database string) fleet.Host {
	return fleet.Host{DB: database, Name: c.Name, Version: c.Store.Version, Schema: ckpt.SchemaVersion}
}
