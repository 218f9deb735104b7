package seal

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// Everybody is the realm whose keys seal for every realm that has none of its own.
const Everybody = "*"

// keyBytes is the length of a realm's key.
const keyBytes = 32

// Ring is all keys of a host, in the order of the key file: the newest of a realm last.
type Ring struct{ keys []*Key }

// Key is a key of a realm. A retired one opens what it has sealed, and seals nothing.
type Key struct {
	Realm, ID string
	Retired   bool

	secret []byte
}

// Name names a key in the engine's rows.
func (k *Key) Name() string { return k.Realm + "/" + k.ID }

// New makes a key.
func New(realm, id string) *Key {
	k := &Key{Realm: realm, ID: id, secret: make([]byte, keyBytes)}
	_, _ = rand.Read(k.secret) // it never fails
	return k
}

// Line is a key as a line of the key file.
func (k *Key) Line() string {
	return k.Realm + " " + k.ID + " " + base64.StdEncoding.EncodeToString(k.secret)
}

// RetiredLine is the line that retires a key, so that a key file only grows.
func (k *Key) RetiredLine() string { return k.Realm + " " + k.ID + " " + retired }

const retired = "retired"

// Read reads a key file: one key a line, which is its realm, its id, and 32 bytes as
// base64. A later line may have the word retired instead. Empty lines and lines that
// begin with # count for nothing. No error shows a key.
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
	return r, r.complete()
}

// take takes a line of the key file.
func (r *Ring) take(line string) error {
	words := strings.Fields(line)
	if len(words) != 3 {
		return fmt.Errorf("a key is REALM ID BASE64, or REALM ID %s", retired)
	}
	k := &Key{Realm: words[0], ID: words[1]}
	if err := k.check(); err != nil {
		return err
	}
	there := r.Find(k.Name())
	switch {
	case words[2] == retired && there == nil:
		return fmt.Errorf("there is no key %s to retire", k.Name())
	case words[2] == retired:
		there.Retired = true
		return nil
	case there != nil:
		return fmt.Errorf("the realm %s has two keys %s", k.Realm, k.ID)
	}
	var err error
	if k.secret, err = base64.StdEncoding.DecodeString(words[2]); err != nil || len(k.secret) != keyBytes {
		return fmt.Errorf("the key %s is not %d bytes as base64", k.Name(), keyBytes)
	}
	r.keys = append(r.keys, k)
	return nil
}

// check refuses a name that cannot stand in a key file.
func (k *Key) check() error {
	words := strings.Fields(k.Realm + " " + k.ID)
	if len(words) != 2 || words[0] != k.Realm || strings.HasPrefix(k.Realm, "#") {
		return fmt.Errorf("%q and %q cannot name a key: write a realm and an id without blanks", k.Realm, k.ID)
	}
	if len(k.Name()) > mostName || strings.Contains(k.ID, "/") {
		return fmt.Errorf("the realm and the id together may have %d bytes, and the id no slash", mostName-1)
	}
	return nil
}

// Add makes a new key of a realm, which seals from now on, and answers its line.
func (r *Ring) Add(realm, id string) (line string, err error) {
	k := New(realm, id)
	if err := k.check(); err != nil {
		return "", err
	}
	if r.Find(k.Name()) != nil {
		return "", fmt.Errorf("there is a key %s already: choose another id", k.Name())
	}
	r.keys = append(r.keys, k)
	return k.Line(), r.complete()
}

// Retire lets a key only open from now on, and answers the line that says so.
func (r *Ring) Retire(realm, id string) (line string, err error) {
	k := r.Find((&Key{Realm: realm, ID: id}).Name())
	if k == nil {
		return "", fmt.Errorf("there is no key %s/%s: `ckptsidecar fleet keys list` lists them", realm, id)
	}
	k.Retired = true
	return k.RetiredLine(), r.complete()
}

// complete refuses a ring that would not seal for everybody.
func (r *Ring) complete() error {
	if r.For(Everybody) == nil {
		return fmt.Errorf("there is no key of the realm %s, which seals for everybody whose realm has no key: make one with `ckptsidecar fleet keys add`",
			Everybody)
	}
	return nil
}

// For is the key that seals for a realm: the newest of its own, else that of everybody.
func (r *Ring) For(realm string) *Key {
	for i := len(r.keys) - 1; i >= 0; i-- {
		if k := r.keys[i]; k.Realm == realm && !k.Retired {
			return k
		}
	}
	if realm == Everybody {
		return nil
	}
	return r.For(Everybody)
}

// Find is the key of a name, nil for none.
func (r *Ring) Find(name string) *Key {
	for _, k := range r.keys {
		if k.Name() == name {
			return k
		}
	}
	return nil
}

// Keys are all keys, in the order of the file.
func (r *Ring) Keys() []*Key { return r.keys }

// Sealing are the names of the keys that seal, in the order of the file.
func (r *Ring) Sealing() (names []string) {
	for _, k := range r.keys {
		if r.For(k.Realm) == k {
			names = append(names, k.Name())
		}
	}
	return names
}

const mostName = 255
