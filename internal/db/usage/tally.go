package usage

// Use is what a transaction adds to an owner's bytes.
type Use struct{ rows, log int64 }

func (u Use) bytes() int64 { return u.rows + u.log }

// Tally is what one transaction stores. The zero Tally counts nothing.
type Tally struct {
	uses map[string]*Use // by owner; nil if nothing is counted
}

// Counts says whether the tally counts.
func (t *Tally) Counts() bool { return t.uses != nil }

// Add adds bytes that no statement shows to an owner's bytes: removed bytes, and bytes that were
// copied inside the database. They count after the transaction is on disk.
func (t *Tally) Add(owner string, bytes int64) {
	if t.uses != nil && bytes != 0 {
		t.of(owner).rows += bytes
	}
}

// AddLog adds a row of the audit log.
func (t *Tally) AddLog(owner string, bytes int64) { t.of(owner).log += bytes }

// of is what the transaction has added to an owner's bytes so far.
func (t *Tally) of(owner string) *Use {
	u := t.uses[owner]
	if u == nil {
		u = &Use{}
		t.uses[owner] = u
	}
	return u
}

// Of is what the transaction has added to an owner's bytes so far. Bytes without an owner are not
// counted.
func (t *Tally) Of(owner string) Use {
	if t.uses == nil || owner == "" {
		return Use{}
	}
	return *t.of(owner)
}
