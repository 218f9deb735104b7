package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// The errors when a seal is opened.
var (
	// ErrNoKey means that this host does not have the key.
	ErrNoKey = errors.New("this host has no key that opens it")
	// ErrBroken means that a blob was changed, or moved from another row.
	ErrBroken = errors.New("its seal is broken: it was changed, or moved here from another row")
)

// The parts of an error that names the missing key.
const (
	sealedWith = ": it is sealed with "
	notSet     = ", and fleet.key_file is not set"
)

// A sealed blob consists of magic, the length of the key's id as one byte, that id,
// and the output of GCM: nonce, text, tag. As a text it is textMark and the blob as
// base64.
const (
	magic    = "ckS1"
	textMark = "sealed:"
)

// Box seals everything that belongs to one run, one agent or one database.
type Box struct {
	head []byte
	aead cipher.AEAD
	mac  []byte
}

// Box derives the keys for one run, agent or database, which uid names.
func (k *Key) Box(uid string) (*Box, error) {
	secret, err := hkdf.Key(sha256.New, k.secret, nil, "ckptsidecar fleet 1\x00"+k.ID+"\x00"+uid, 2*keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret[:keyBytes])
	if err != nil {
		return nil, err
	}
	b := &Box{head: append([]byte(magic), byte(len(k.ID))), mac: secret[keyBytes:]}
	b.head = append(b.head, k.ID...)
	b.aead, err = cipher.NewGCMWithRandomNonce(block)
	return b, err
}

// Place names a row, and a column of it. A blob can be opened only at its own place.
func Place(parts ...string) string { return strings.Join(parts, "\x00") }

// Seal seals a blob for a place.
func (b *Box) Seal(plain []byte, place string) []byte {
	out := make([]byte, len(b.head), len(b.head)+len(plain)+b.aead.Overhead())
	copy(out, b.head)
	return b.aead.Seal(out, nil, plain, b.about(place))
}

// SealText is like Seal, for a text.
func (b *Box) SealText(plain, place string) string {
	return textMark + base64.RawStdEncoding.EncodeToString(b.Seal([]byte(plain), place))
}

// about returns what a seal covers in addition to the blob.
func (b *Box) about(place string) []byte { return append(bytes.Clone(b.head), place...) }

// Sum returns the hash of a state that readers without the key see. It is an HMAC,
// because the hash itself would let others guess a small state.
func (b *Box) Sum(sha string) string {
	h := hmac.New(sha256.New, b.mac)
	h.Write([]byte(sha))
	return hex.EncodeToString(h.Sum(nil))
}

func (b *Box) open(blob []byte, place string) ([]byte, error) {
	plain, err := b.aead.Open(nil, nil, blob[len(b.head):], b.about(place))
	if err != nil {
		return nil, ErrBroken
	}
	return plain, nil
}

// keyOf returns the id of the key of a sealed blob.
func keyOf(blob []byte) (id string, err error) {
	rest, is := bytes.CutPrefix(blob, []byte(magic))
	if !is || len(rest) == 0 || len(rest) <= int(rest[0]) {
		return "", ErrBroken
	}
	return string(rest[1 : 1+int(rest[0])]), nil
}

// boxes are the boxes that were used recently.
type boxes map[string]*Box

// mostBoxes is the most boxes that are kept.
const mostBoxes = 1 << 12

func (m boxes) of(k *Key, uid string) (*Box, error) {
	at := k.ID + "\x00" + uid
	if b := m[at]; b != nil {
		return b, nil
	}
	b, err := k.Box(uid)
	if err != nil {
		return nil, err
	}
	if len(m) >= mostBoxes {
		clear(m)
	}
	m[at] = b
	return b, nil
}

// Opener opens what hosts have sealed. Only one goroutine may use it. The zero value
// has no keys, and opens only what is in the clear.
type Opener struct {
	Ring  *Ring
	boxes boxes
}

func (o *Opener) box(name, uid string) (*Box, error) {
	if o.Ring == nil {
		return nil, fmt.Errorf("%w"+sealedWith+"%s"+notSet, ErrNoKey, name)
	}
	k := o.Ring.Find(name)
	if k == nil {
		return nil, fmt.Errorf("%w"+sealedWith+"%s", ErrNoKey, name)
	}
	if o.boxes == nil {
		o.boxes = boxes{}
	}
	return o.boxes.of(k, uid)
}

// Open opens a blob that belongs to the run, agent or database that uid names.
func (o *Opener) Open(blob []byte, uid, place string) ([]byte, error) {
	name, err := keyOf(blob)
	if err != nil {
		return nil, err
	}
	b, err := o.box(name, uid)
	if err != nil {
		return nil, err
	}
	return b.open(blob, place)
}

// Text opens a text. It returns a text that is in the clear as it is.
func (o *Opener) Text(text, uid, place string) (string, error) {
	coded, is := strings.CutPrefix(text, textMark)
	if !is {
		return text, nil
	}
	blob, err := base64.RawStdEncoding.DecodeString(coded)
	if err != nil {
		return "", ErrBroken
	}
	plain, err := o.Open(blob, uid, place)
	return string(plain), err
}
