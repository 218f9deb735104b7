package ledger

import (
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// trust is what is known to be wrong with the audit log.
type trust struct {
	mu     sync.Mutex
	Doubt  string
	noted  headNote // what the file says
	Guards []string // which were missing or changed at the start; set only then
}

// headNote is what the file holds. It is replaced as a whole, and only after the
// row that it names is on disk, so a crash at any time leaves a true one.
type headNote struct {
	Database string    `json:"database"` // the id of the database
	N        int64     `json:"n"`
	Hash     string    `json:"hash"`
	At       ckpt.Time `json:"at"`
	Doubt    string    `json:"doubt,omitempty"` // what an earlier start found wrong; it stands until somebody removes the file
}

func (t *trust) Problem() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Doubt
}
