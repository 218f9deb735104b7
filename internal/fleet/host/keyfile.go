package host

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// Keys lists the keys of a file.
func Keys(path string) (*fleet.Keys, error) {
	ring, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	all := &fleet.Keys{File: path, Keys: []fleet.KeyShown{}}
	for _, k := range ring.Keys() {
		all.Keys = append(all.Keys, fleet.KeyShown{ID: k.ID, Seals: k == ring.Sealing()})
	}
	return all, nil
}

// readKeyFile reads a key file without the settings.
func readKeyFile(path string) (*seal.Ring, error) {
	return (&Config{KeyFile: path, Env: func(string) string { return "" }}).ring()
}

// AddKey adds a new key to a file, which may have no key yet, or makes the file.
// If id is "", the key gets an id that begins with today's date. AddKey returns the key's id.
func AddKey(path, id string, now time.Time) (string, error) {
	ring, err := readKeyFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, seal.ErrNoKeys):
		ring = &seal.Ring{}
	case err != nil:
		return "", err
	}
	if id == "" {
		id = keyID(now)
	}
	line, err := ring.Add(id)
	if err != nil {
		return "", err
	}
	return id, appendLine(path, line)
}

// keyID returns today's date and a few letters, so that keys which two hosts make on the
// same day have different names.
func keyID(now time.Time) string {
	return now.UTC().Format("2006-01-02") + "." + strings.ToLower(rand.Text()[:6])
}

// appendLine adds a line to a file that only its owner may read. It does not rewrite the
// lines that are there: if a key were lost, everything that it has sealed would be lost
// too. It ends the last line first if an editor has not.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	whole, err := endsWithLine(f)
	if err == nil {
		if !whole {
			line = "\n" + line
		}
		_, err = f.WriteString(line + "\n")
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// endsWithLine reports whether a file is empty, or its last line has an end.
func endsWithLine(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return true, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return last[0] == '\n', err
}
