package host

import (
	"context"
	"database/sql"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// What the answer about a run says about its ownership.
const (
	ownedHeld     = "held"
	ownedDoubtful = "doubtful" // this host's lease is over
	ownedReleased = "released" // the owner has let go of the run: another host may claim it at once
)

// TellPlace adds to the answer about a run where it is in the fleet.
func (m *Member) TellPlace(ctx context.Context, run *ckpt.Run) error {
	l := m.lease()
	if l == nil {
		return nil
	}
	other, elsewhere, err := journal.New(m.store.Core).OtherOwner(ctx, run.Owner, run.Agent, run.Run)
	switch {
	case errors.Is(err, sql.ErrNoRows): // the run was just removed
		return nil
	case err != nil:
		return err
	}
	if p, err := m.store.FleetPolicyOf(run.Owner, run.Agent); err == nil {
		if !elsewhere && !m.shipper.choice.Ships(p) {
			return nil // the run belongs to this host alone
		}
		run.Durability = p.Durability
	}
	run.Host, run.Term, run.FleetAsOf = m.shipper.host.Name, fleet.TermOf(run.Epoch), m.shipper.told().mark.N
	switch {
	case elsewhere:
		run.Host, run.Term, run.Ownership = other.Host, other.Term, ckpt.OwnershipFenced
	case fleet.LetsGo(string(run.Status)):
		run.Ownership = ownedReleased
	case l.Held():
		run.Ownership = ownedHeld
	default:
		run.Ownership = ownedDoubtful
	}
	return nil
}
