package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// Credential is the prefix of a setting that names a credential of systemd instead of a
// file.
const Credential = "credential:"

// mostSecret is a size that no file with a URL or with keys reaches.
const mostSecret = 1 << 20

// secretFile reads what a setting names: a file that others must not be able to read, or a
// credential of systemd. Its errors never show the content.
func secretFile(env func(string) string, setting, value, what string) (path, text string, err error) {
	path = value
	if name, is := strings.CutPrefix(value, Credential); is {
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

// URL reads the URL of the fleet's engine. Its errors never show the URL.
func (c *Config) URL() (string, error) {
	if c.EngineFile == "" {
		return "", fmt.Errorf("no engine is set: name the file with its URL as fleet.engine_file, see docs/FLEET.md")
	}
	path, text, err := secretFile(c.Env, "fleet.engine_file", c.EngineFile, "the engine's URL")
	if err != nil {
		return "", err
	}
	url := strings.TrimSpace(text)
	if err := pg.CheckURL(url); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return url, nil
}

// ring reads the keys that seal what is shipped. It returns nil if the host ships in the
// clear.
func (c *Config) ring() (*seal.Ring, error) {
	if c.KeyFile == "" {
		return nil, nil
	}
	path, text, err := secretFile(c.Env, "fleet.key_file", c.KeyFile, "the keys of the fleet")
	if err != nil {
		return nil, err
	}
	r, err := seal.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// keys returns how the keys are read, nil for a host that ships in the clear.
func (c *Config) keys() func() (*seal.Ring, error) {
	if c.KeyFile == "" {
		return nil
	}
	return c.ring
}
