package seal

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// keyBytes is the length of a key.
const keyBytes = 32

// mostID is the longest id of a key.
const mostID = 255

// Ring is all keys of a host, in the order of the key file. The last key seals, and the others open what they
// have sealed.
type Ring struct{ keys []*Key }

// Key is a key. Its id names it in the engine's rows.
type Key struct {
	ID string

	secret []byte
}

// New makes a key.
func New(id string) *Key {
	k := &Key{ID: id, secret: make([]byte, keyBytes)}
	_, _ = rand.Read(k.secret) // it never fails
	return k
}

// Line returns the key as a line of the key file.
func (k *Key) Line() string { return k.ID + " " + base64.StdEncoding.EncodeToString(k.secret) }

// ErrNoKeys means that a key file has no key.
var ErrNoKeys = errors.New("there is no key: make one with `ckptsidecar fleet keys add`")

// Read reads a key file. Each line has one key: its id, and 32 bytes as base64. Empty lines and
// lines that begin with # are ignored. No error shows a key.
func Read(text string) (*Ring, error) {
	r := &Ring{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := r.take(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if len(r.keys) == 0 {
		return r, ErrNoKeys
	}
	return r, nil
}

// take reads one line of the key file into the ring.
func (r *Ring) take(line string) error {
	words := strings.Fields(line)
	if len(words) != 2 {
		return errors.New("a key is ID BASE64")
	}
	secret, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil || len(secret) != keyBytes {
		return fmt.Errorf("the second word is not %d bytes as base64", keyBytes)
	}
	return r.add(&Key{ID: words[0], secret: secret})
}

func (r *Ring) add(k *Key) error {
	switch {
	case k.ID == "" || strings.ContainsAny(k.ID, " \t\r\n#") || len(k.ID) > mostID:
		return fmt.Errorf("%.300q cannot name a key: write at most %d bytes without blanks and without #", k.ID, mostID)
	case r.Find(k.ID) != nil:
		return fmt.Errorf("there are two keys %s: choose another id", k.ID)
	}
	r.keys = append(r.keys, k)
	return nil
}

// Add makes a new key, which seals from now on, and returns its line.
func (r *Ring) Add(id string) (line string, err error) {
	k := New(id)
	return k.Line(), r.add(k)
}

// Sealing returns the key that seals.
func (r *Ring) Sealing() *Key { return r.keys[len(r.keys)-1] }

// Find returns the key with an id, nil if there is none.
func (r *Ring) Find(id string) *Key {
	for _, k := range r.keys {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// Keys returns all keys, in the order of the file.
func (r *Ring) Keys() []*Key { return r.keys }
