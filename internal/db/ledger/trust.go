package ledger

import (
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// trust is what is known to be wrong with the audit log.
type trust struct {
	mu     sync.Mutex
	Doubt  string
	noted  headNote // the contents of the head file
	Guards []string // guards that were missing or changed at the start; set only then
}

// headNote is the contents of the head file. The file is replaced as a whole, and only after the
// row that it names is on disk, so a crash at any time leaves a true note.
type headNote struct {
	Database string    `json:"database"` // the id of the database
	N        int64     `json:"n"`
	Hash     string    `json:"hash"`
	At       ckpt.Time `json:"at"`
	Doubt    string    `json:"doubt,omitempty"` // what an earlier start found wrong; it stays until a person removes the file
}

func (t *trust) Problem() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Doubt
}
