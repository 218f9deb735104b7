package secrets

// Secret is something in a state or in another part of a request that looks like a
// secret. It says where and what, never the value.
type Secret struct {
	In   string `json:"in,omitempty"` // "" for a state, else what holds it: "step", "run", "event", …
	Path string `json:"path"`         // a JSON pointer; "" in a state that is not JSON
	Kind string `json:"kind"`         // for people: "an API key", "a private key", …
}

// Seen is where in a state a scan has found secrets. It never changes.
type Seen interface {
	Size() int // bytes of memory
}
