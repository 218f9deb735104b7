package secrets

// Secret is something that looks like a secret, in a state or in another part of a
// request. It says where it is and what it is, but never the value.
type Secret struct {
	In       string `json:"in,omitempty"`       // "" for a state, otherwise what contains it: "step", "run", "event", …
	Path     string `json:"path"`               // a JSON pointer; "" in a state that is not JSON
	Kind     string `json:"kind"`               // for people: "an API key", "a private key", …
	Redacted bool   `json:"redacted,omitempty"` // it was replaced before the rest was stored
}

// Seen records where in a state a scan has found secrets. It never changes.
type Seen interface {
	Size() int // bytes of memory
}
