package ckptsidecar

// Secret is something in a state that looks like a secret. It says where and
// what, never the value.
type Secret struct {
	Path string `json:"path"` // a JSON pointer; "" in a state that is not JSON
	Kind string `json:"kind"` // for people: "an API key", "a private key", …
}

// SecretScan looks for secrets in states. internal/secrets has the real one;
// the store takes it as a value.
type SecretScan interface {
	// Find answers the first few secrets of a state. A JSON state must have been
	// checked before.
	Find(state []byte, json bool) []Secret
	// FindAfter answers what Find answers of a JSON state, and looks only at what
	// checking it did not pass over: seen is what was answered of the state
	// before, which has the rest; nil for nothing, and then all is looked at. The
	// second answer is for the next state. It is nil where it would be too much.
	FindAfter(state []byte, checked JSONChecked, seen SecretsSeen) ([]Secret, SecretsSeen)
	// FindBytesAfter is FindAfter for a state that is not JSON: same is what it
	// has in common with the one before.
	FindBytesAfter(state []byte, same []Copy, seen SecretsSeen) ([]Secret, SecretsSeen)
	// Redact answers the state with every secret replaced, and the first few.
	Redact(state []byte, json bool) ([]byte, []Secret)
}

// SecretsSeen is where in a state secrets were found, as its scan notes it. It
// is never changed.
type SecretsSeen interface {
	Size() int // bytes of memory
}
