package blob

import (
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// Scan looks for secrets in states. internal/secrets has the implementation.
type Scan interface {
	// Find returns the first few secrets of a state. A JSON state must have been checked before.
	Find(state []byte, json bool) []secrets.Secret
	// FindAfter returns what Find returns for a JSON state, but looks only at the parts that the
	// check did not skip. seen is the result for the previous state, which has the skipped parts;
	// if it is nil, FindAfter looks at everything. The second result is for the next state. It is
	// nil if it would be too large.
	FindAfter(state []byte, checked jsontext.Checked, seen secrets.Seen) ([]secrets.Secret, secrets.Seen)
	// FindBytesAfter is FindAfter for a state that is not JSON: same is what it has in common with
	// the previous one.
	FindBytesAfter(state []byte, same []jsontext.Copy, seen secrets.Seen) ([]secrets.Secret, secrets.Seen)
	// Redact returns the state with all secrets replaced, and the first few secrets.
	Redact(state []byte, json bool) ([]byte, []secrets.Secret)
}
