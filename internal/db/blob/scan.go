package blob

import (
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// Scan looks for secrets in states. internal/secrets has the real one.
type Scan interface {
	// Find answers the first few secrets of a state. A JSON state must have been
	// checked before.
	Find(state []byte, json bool) []secrets.Secret
	// FindAfter answers what Find answers of a JSON state, and looks only at what
	// checking it did not pass over: seen is what was answered of the state
	// before, which has the rest; nil for nothing, and then all is looked at. The
	// second answer is for the next state. It is nil where it would be too much.
	FindAfter(state []byte, checked jsontext.Checked, seen secrets.Seen) ([]secrets.Secret, secrets.Seen)
	// FindBytesAfter is FindAfter for a state that is not JSON: same is what it
	// has in common with the one before.
	FindBytesAfter(state []byte, same []jsontext.Copy, seen secrets.Seen) ([]secrets.Secret, secrets.Seen)
	// Redact answers the state with every secret replaced, and the first few.
	Redact(state []byte, json bool) ([]byte, []secrets.Secret)
}
