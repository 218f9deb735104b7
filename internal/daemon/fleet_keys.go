package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// mostSecret is more than any file with a URL or with keys has.
const mostSecret = 1 << 20

// secretFile reads a file that others may not read, or a credential of systemd, which a
// setting names. No error of it shows what is in it.
func secretFile(env Environment, setting, value, what string) (path, text string, err error) {
	path = value
	if name, is := strings.CutPrefix(value, credential); is {
		folder := env("CREDENTIALS_DIRECTORY")
		if folder == "" {
			return "", "", fmt.Errorf("%s is %s, and systemd handed over no credentials: add LoadCredential=%s:FILE to the unit", setting, value, name)
		}
		path = filepath.Join(folder, name)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", "", fmt.Errorf("%s cannot be read: %w", what, err)
	}
	if info.Size() > mostSecret {
		return "", "", fmt.Errorf("%s does not hold %s: it has %d bytes", path, what, info.Size())
	}
	if why := openToOthers(info.Mode()); why != "" && path == value {
		return "", "", fmt.Errorf("%s holds %s, and %s: chmod 600 it", path, what, why)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", "", fmt.Errorf("%s cannot be read: %w", what, err)
	}
	return path, string(b), nil
}

// checkSecretFile refuses what names no file and no credential.
func (k *checking) checkSecretFile(key, value string) {
	switch name, isCredential := strings.CutPrefix(value, credential); {
	case value == "":
	case isCredential && (name == "" || strings.ContainsAny(name, `/\`)):
		k.bad(key, "names no credential: write credential:NAME, as in LoadCredential=NAME:FILE of the unit")
	case !isCredential && !filepath.IsAbs(value):
		k.bad(key, "is %q: give an absolute path, because a service has no working folder of its own", value)
	}
}

// Keys reads the keys that seal what is shipped, nil where it is shipped in the clear.
func (c *Config) Keys(env Environment) (*seal.Ring, error) {
	if c.FleetKeys == "" {
		return nil, nil
	}
	path, text, err := secretFile(env, "fleet.key_file", c.FleetKeys, "the keys of the fleet")
	if err != nil {
		return nil, err
	}
	r, err := seal.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// loadKeys reads the keys anew. Where that fails nothing may be shipped: in the clear
// it would be what nobody wants.
func (s *shipper) loadKeys() error {
	var ring *seal.Ring
	if s.keys != nil {
		var err error
		if ring, err = s.keys(); err != nil {
			return err
		}
	}
	s.sealer = nil
	var names []string
	if ring != nil {
		s.sealer, names = seal.NewSealer(ring, s.host.DB), ring.Sealing()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.sealing = names
	return nil
}

// prepare says who owns what is in a batch, and seals it.
func (s *shipper) prepare(c *fleet.Changes) error {
	ids := s.identities()
	ids.Name(c)
	if s.sealer == nil {
		return nil
	}
	return s.sealer.Changes(c, ids)
}

// opener opens what hosts have sealed.
func opener(keys func() (*seal.Ring, error)) (*seal.Opener, error) {
	if keys == nil {
		return &seal.Opener{}, nil
	}
	ring, err := keys()
	return &seal.Opener{Ring: ring}, err
}

func (c *Config) opener(env Environment) (*seal.Opener, error) {
	return opener(func() (*seal.Ring, error) { return c.Keys(env) })
}

// mustOpenSome refuses to give a host's runs to one that can open none of them.
func mustOpenSome(ctx context.Context, e *pg.Engine, o *seal.Opener, db string) error {
	agents, err := e.Lost(ctx, db)
	if err != nil {
		return err
	}
	key := ""
	for i := range agents {
		for _, r := range agents[i].Runs {
			if o.Has(r.KeyID) {
				return nil
			}
			key = r.KeyID
		}
	}
	if key == "" {
		return nil
	}
	return ckpt.Errorf(ckpt.CodeConflict,
		"all runs of this host are sealed, for example with the key %s, and this host has none of the keys: add them to fleet.key_file; nothing was changed",
		key)
}
