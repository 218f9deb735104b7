package host

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Durable returns how safe the write is that an agent has just made. If that is not
// known yet, it returns a function that waits until the write is as safe as the agent's
// policy says.
func (m *Member) Durable(sc ckpt.Scope, agent, run string) (ckpt.Durability, func(context.Context) (ckpt.Durability, error)) {
	p, err := m.store.FleetPolicyOf(sc.Whose(), agent)
	want, outage := p.Durability, p.OnOutage
	switch {
	case err == nil && want == ckpt.DurabilityLocal && m.shipper == nil:
		return "", nil // there is no fleet, and the policy does not ask for one
	case err == nil && want == ckpt.DurabilityLocal:
		return ckpt.DurabilityLocal, nil
	}
	n := m.store.Committed()
	return "", func(ctx context.Context) (ckpt.Durability, error) {
		if err != nil {
			e := notReplicated("the policy cannot be read")
			e.Err = err
			return "", e
		}
		degrade := outage == ckpt.OutageDegrade
		err := error(notReplicated("this host has no engine of a fleet: set fleet.engine_file"))
		if m.shipper != nil {
			ctx, cancel := context.WithTimeout(ctx, m.writeTimeout)
			defer cancel()
			err = m.shipper.waiters.Wait(ctx, n, fleet.RunName(sc.Whose(), agent, run), degrade)
		}
		switch {
		case err == nil:
			return ckpt.DurabilityFleet, nil
		case degrade && ckpt.CodeOf(err) == ckpt.CodeNotReplicated:
			return ckpt.DurabilityLocal, nil
		}
		return "", err
	}
}
