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
	// Find answers the first few secrets of a state.
	Find(state []byte, json bool) []Secret
	// Redact answers the state with every secret replaced, and the first few.
	Redact(state []byte, json bool) ([]byte, []Secret)
}
