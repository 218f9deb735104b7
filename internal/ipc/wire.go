package ipc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The headers of replies that are not standard.
const (
	// HeaderReplayed marks a reply that was given before.
	HeaderReplayed = "Idempotent-Replayed"
	// HeaderAsSent says that a state is stored byte for byte as it was sent, or exactly
	// as the sent change produces it.
	HeaderAsSent = "Ckpt-As-Sent"
	// HeaderSHA256 is the hash of the bytes of a state.
	HeaderSHA256 = "Ckpt-Sha256"
	// HeaderStateRange is the position of the value of state or state_base64 in the body:
	// the first and the last byte, as in HTTP ranges.
	HeaderStateRange = "Ckpt-State-Range"
)

// These are values of headers that all replies share; net/http only reads them.
var (
	TypeJSON   = []string{ckpt.ContentTypeJSON}
	TypeNDJSON = []string{"application/x-ndjson"}
	TypeSQLite = []string{"application/vnd.sqlite3"}
	IsTrue     = []string{"true"}
)

// TypeBytes is the content type of a state that was sent without one.
const TypeBytes = "application/octet-stream"

// HeaderBaseSHA256 is the hash of the base as the client has it.
const HeaderBaseSHA256 = "Ckpt-Base-Sha256"

// HeaderCRC32C is the CRC-32C of a state as the client has it. It costs next to nothing,
// while a SHA-256 would cost more than the rest of the request.
const HeaderCRC32C = "Ckpt-Crc32c"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns a state's checksum in the form of the header.
func CRC32C(state []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(state, castagnoli)) }

// Content types that say which form the body of a save has.
const (
	TypeMergePatch = "application/merge-patch+json"
	TypeJSONPatch  = "application/json-patch+json"
	TypeDelta      = "application/vnd.ckptsidecar.delta"
	TypeForm       = "application/x-www-form-urlencoded" // curl sends it if the user sets no content type
)

// Headers of a raw save, for values that are JSON.
const (
	HeaderMetadata = "Ckpt-Metadata"
	HeaderProgram  = "Ckpt-Program"
)

// HeaderTree names the trees of files that a checkpoint is saved with: their ids,
// with commas between them.
const HeaderTree = "Ckpt-Tree"

// TypeContents is the content type of a stream of contents. Each content is a line with
// its SHA-256, its size, and the SHA-256 of the previous version or -, followed by its
// bytes.
const TypeContents = "application/vnd.ckptsidecar.contents"

// HeaderSpooled says when a client spooled a write: docs/SPOOL.md.
const HeaderSpooled = "Ckpt-Spooled"

type Parameter struct{ Name, Value string }

// OwnerParameter is a parameter that every call accepts.
const OwnerParameter = "owner"

// LabelParameter is the only parameter that can be repeated.
const LabelParameter = "label"

// EncodeJSON writes a value on one line.
func EncodeJSON(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return ckpt.Wrap(ckpt.CodeInternal, err, "the answer cannot be written as JSON")
	}
	return nil
}
