package seal

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// Everybody is the realm whose keys seal for every realm that has no key of its own.
const Everybody = "*"

// keyBytes is the length of a realm's key.
const keyBytes = 32

// Ring is all keys of a host, in the order of the key file: the newest key of a realm
// is last.
type Ring struct{ keys []*Key }

// Key is a key of a realm. A retired key opens what it has sealed, and seals nothing.
type Key struct {
	Realm, ID string
	Retired   bool

	secret []byte
}

// Name returns the name of a key in the engine's rows.
func (k *Key) Name() string { return k.Realm + "/" + k.ID }

// New makes a key.
func New(realm, id string) *Key {
	k := &Key{Realm: realm, ID: id, secret: make([]byte, keyBytes)}
	_, _ = rand.Read(k.secret) // it never fails
	return k
}

// Line returns the key as a line of the key file.
func (k *Key) Line() string {
	return k.Realm + " " + k.ID + " " + base64.StdEncoding.EncodeToString(k.secret)
}

// RetiredLine returns the line that retires a key. Lines are only added to a key file.
func (k *Key) RetiredLine() string { return k.Realm + " " + k.ID + " " + retired }

const retired = "retired"

// Read reads a key file. Each line has one key: its realm, its id, and 32 bytes as
// base64. A later line can have the word retired instead of the bytes. Empty lines and
// lines that begin with # are ignored. No error shows a key.
func Read(text string) (*Ring, error) {
	r, err := ReadSome(text)
	if err != nil {
		return nil, err
	}
	return r, r.complete()
}

// ReadSome reads a key file that may lack keys, also all of them.
func ReadSome(text string) (*Ring, error) {
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
	return r, nil
}

// take reads one line of the key file into the ring.
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

// check refuses a name that a key file cannot hold.
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

// Add makes a new key of a realm, which seals from now on, and returns its line.
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

// Retire makes a key only open from now on, and returns the line that says so.
func (r *Ring) Retire(realm, id string) (line string, err error) {
	k := r.Find((&Key{Realm: realm, ID: id}).Name())
	if k == nil {
		return "", fmt.Errorf("there is no key %s/%s: `ckptsidecar fleet keys list` lists them", realm, id)
	}
	k.Retired = true
	return k.RetiredLine(), r.complete()
}

// complete refuses a ring that does not seal for every realm.
func (r *Ring) complete() error {
	if r.For(Everybody) == nil {
		return fmt.Errorf("there is no key of the realm %s, which seals for everybody whose realm has no key: make one with `ckptsidecar fleet keys add`",
			Everybody)
	}
	return nil
}

// For returns the key that seals for a realm: the newest key of the realm, otherwise
// the newest key of Everybody.
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

// Find returns the key with a name, nil if there is none.
func (r *Ring) Find(name string) *Key {
	for _, k := range r.keys {
		if k.Name() == name {
			return k
		}
	}
	return nil
}

// Keys returns all keys, in the order of the file.
func (r *Ring) Keys() []*Key { return r.keys }

// Sealing returns the names of the keys that seal, in the order of the file.
func (r *Ring) Sealing() (names []string) {
	for _, k := range r.keys {
		if r.For(k.Realm) == k {
			names = append(names, k.Name())
		}
	}
	return names
}

const mostName = 255
