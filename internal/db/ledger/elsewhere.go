package ledger

import (
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Elsewhere says which host of the fleet owns a run that is also stored here.
type Elsewhere struct {
	Host string // its name
	Term int64  // the term under which it owns the run
}

// elsewhere maps the numbers of the runs that other hosts own. It is nil on a host that has no such
// run, so that a save pays one load for it.
type elsewhere struct {
	runs atomic.Pointer[map[int64]Elsewhere]
}

// SetElsewhere sets which runs other hosts own. From now on, writes to those runs are refused here,
// with or without an epoch. Their stored data stays.
func (s *Core) SetElsewhere(runs map[int64]Elsewhere) {
	if len(runs) == 0 {
		s.elsewhere.runs.Store(nil)
		return
	}
	runs = maps.Clone(runs)
	s.elsewhere.runs.Store(&runs)
}

// OtherOwner returns the host that owns the run with a number, and false if this host does.
func (s *Core) OtherOwner(run int64) (owner Elsewhere, is bool) {
	if runs := s.elsewhere.runs.Load(); runs != nil {
		owner, is = (*runs)[run]
	}
	return owner, is
}

// ElsewhereIDs returns the numbers of the runs that other hosts own, as a JSON array for SQL.
func (s *Core) ElsewhereIDs() string {
	runs := s.elsewhere.runs.Load()
	if runs == nil {
		return "[]"
	}
	text, _ := json.Marshal(slices.Sorted(maps.Keys(*runs))) // numbers are always JSON
	return string(text)
}

// OwnedHere refuses a run that another host of the fleet owns.
func (s *Core) OwnedHere(r *RunRow) error {
	owner, is := s.OtherOwner(r.ID)
	if !is {
		return nil
	}
	refused := ckpt.Errorf(ckpt.CodeFenced,
		"host %s of the fleet has claimed run %s (term %d): stop this agent; an administrator sees with `ckptsidecar fleet status` what was saved here after the claim",
		owner.Host, r.Name, owner.Term)
	refused.Host, refused.Term = owner.Host, owner.Term
	return refused
}

// MayOwn refuses to write to, or to resume, a run that another host owns or that is only observed.
func (s *Core) MayOwn(r *RunRow) error {
	if err := s.OwnedHere(r); err != nil {
		return err
	}
	return r.mayOwn()
}
