package usage

import (
	"slices"
	"strings"
)

// Statement is what a tally must know of a statement.
type Statement struct {
	stores   bool
	replaces bool  // it replaces stored data with data of about the same length
	fills    bool  // it sets columns that had no value
	extra    int64 // bytes that it stores besides its arguments
}

// filled are the tables whose rows get their texts in two statements: an UPDATE of one sets what the
// INSERT left empty.
var filled = []string{"steps", "operations", "findings", "prompts"}

// Look examines the text of a statement.
func Look(query string) Statement {
	query = strings.TrimSpace(query)
	verb, rest, _ := strings.Cut(query, " ")
	s := Statement{stores: verb == "INSERT" || verb == "UPDATE" || verb == "REPLACE"}
	if verb == "UPDATE" {
		s.fills = slices.ContainsFunc(filled, func(table string) bool { return strings.HasPrefix(rest, table+" ") })
		s.replaces = !s.fills
	}
	return s
}

// Inserts is a statement that writes a whole row, whatever its verb is. extra is the length of the row's texts that
// are no arguments, less the arguments that are not stored.
func Inserts(extra int64) Statement { return Statement{stores: true, extra: extra} }

// looseChange is the longest text of an UPDATE that is not counted: an id, a time or a hash
// replaces another.
const looseChange = 64

// Use is what a transaction adds to an owner's bytes.
type Use struct{ rows, log int64 }

func (u Use) bytes() int64 { return u.rows + u.log }

// Tally is what one transaction stores. The zero Tally counts nothing.
type Tally struct {
	uses   map[string]*Use // by owner; nil if nothing is counted
	stored int64           // bytes of the present operation
}

// Counts says whether the tally counts.
func (t *Tally) Counts() bool { return t.uses != nil }

// Begin begins the next operation of the transaction.
func (t *Tally) Begin() { t.stored = 0 }

// Count adds what a statement stores to the bytes of its operation.
func (t *Tally) Count(s Statement, args []any) {
	if t.uses == nil || !s.stores {
		return
	}
	if s.replaces {
		for _, arg := range args {
			t.stored += max(0, LengthOf(arg)-looseChange)
		}
		return
	}
	if s.fills {
		for _, arg := range args {
			t.stored += LengthOf(arg)
		}
		return
	}
	t.stored += RowLength(args...) + s.extra
}

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
