package ledger

import (
	"maps"
	"sync/atomic"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// fullOwners are the owners that have used up their quota in the fleet, each with the refusal that
// their agents get. It is nil if there is none, so that a save pays one load for it.
type fullOwners struct {
	list atomic.Pointer[map[string]*ckpt.Error]
}

// SetFull sets which owners have used up their quota in the fleet. From now on, their agents with
// durability fleet may not add anything, unless their policies say degrade.
func (s *Core) SetFull(owners map[string]*ckpt.Error) {
	if len(owners) == 0 {
		s.fullOwners.list.Store(nil)
		return
	}
	owners = maps.Clone(owners)
	s.fullOwners.list.Store(&owners)
}

// FullInFleet is the refusal for an owner that has used up its quota in the fleet, nil for others.
func (s *Core) FullInFleet(owner string) *ckpt.Error {
	if owners := s.fullOwners.list.Load(); owners != nil {
		return (*owners)[owner]
	}
	return nil
}

// MayAddToFleet refuses a write that adds to an agent whose policy asks for durability fleet, if
// its owner has used up its quota there. The ends of steps, operations and runs are not checked. If
// the policy cannot be read, nothing is refused: the reply says later how safe the write is.
func (s *Core) MayAddToFleet(owner, agent string) error {
	full := s.FullInFleet(owner)
	if full == nil {
		return nil
	}
	p, err := s.FleetPolicyOf(owner, agent)
	if err != nil || p.Durability != ckpt.DurabilityFleet || p.OnOutage == ckpt.OutageDegrade {
		return nil
	}
	refused := *full
	return &refused
}
