package ledger

import (
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// damages are the checkpoints that are known to be damaged: those that meta names, and those that
// are about to be noted there.
type damages struct {
	mu    sync.Mutex
	noted map[string]bool // false while it is being noted
}

// begin notes that a checkpoint is damaged. It returns false if that is already known.
func (d *damages) begin(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.noted[id]; known {
		return false
	}
	d.set(id, false)
	return true
}

func (d *damages) set(id string, noted bool) {
	if d.noted == nil {
		d.noted = map[string]bool{}
	}
	d.noted[id] = noted
}

func (d *damages) done(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(id, true)
}

func (d *damages) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.noted, id)
}

func (d *damages) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.noted[id]
	return known
}

func (d *damages) ids() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]string, 0, len(d.noted))
	for id := range d.noted {
		ids = append(ids, id)
	}
	return ids
}

func (d *damages) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.noted)
}

// IsDamage says whether an error may be about the rows of one run only, so that background work goes
// on with the others. A row that cannot be scanned is an internal error.
func IsDamage(err error) bool {
	code := ckpt.CodeOf(err)
	return code == ckpt.CodeInternal || code == ckpt.CodeCorrupt
}
