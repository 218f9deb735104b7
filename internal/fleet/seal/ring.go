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
	line := k.Realm + " " + k.ID + " " + base64.StdEncoding.EncodeToString(k.secret)
	if k.Retired {
		line += " " + retired
	}
	return line
}

// retired is the word that ends the line of a key which seals nothing any more.
const retired = "retired"

// Read reads a key file: one key a line, which is its realm, its id, 32 bytes as
// base64, and perhaps the word retired. Empty lines and lines that begin with # count
// for nothing. No error shows a key.
func Read(text string) (*Ring, error) {
	r := &Ring{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := readLine(line)
		if err == nil && r.Find(k.Name()) != nil {
			err = fmt.Errorf("the realm %s has two keys %s", k.Realm, k.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		r.keys = append(r.keys, k)
	}
	if r.For(Everybody) == nil {
		return nil, fmt.Errorf("there is no key of the realm %s, which seals for everybody whose realm has no key: make one with `ckptsidecar fleet keys add`", Everybody)
	}
	return r, nil
}

func readLine(line string) (*Key, error) {
	words := strings.Fields(line)
	if len(words) < 3 || len(words) > 4 || len(words) == 4 && words[3] != retired {
		return nil, fmt.Errorf("a key is REALM ID BASE64, and perhaps the word %s", retired)
	}
	k := &Key{Realm: words[0], ID: words[1], Retired: len(words) == 4}
	if len(k.Name()) > mostName || strings.Contains(k.ID, "/") {
		return nil, fmt.Errorf("the realm and the id together may have %d bytes, and the id no slash", mostName-1)
	}
	var err error
	if k.secret, err = base64.StdEncoding.DecodeString(words[2]); err != nil || len(k.secret) != keyBytes {
		return nil, fmt.Errorf("the key %s is not %d bytes as base64", k.Name(), keyBytes)
	}
	return k, nil
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
