package journal

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Choice says what is read for the engine.
type Choice struct {
	ByPolicy bool         // only agents whose policies ask for the fleet
	Also     []fleet.Name // agents, and runs as wholes, that are read although no row names them
}

// Ships says whether agents with a policy are shipped: those whose writes wait for the
// engine, or whose runs go on elsewhere by themselves.
func (c *Choice) Ships(p *ckpt.Policy) bool {
	return !c.ByPolicy || p.Durability == ckpt.DurabilityFleet || p.Takeover == ckpt.TakeoverAuto
}

// shipsStored says it of a stored policy. An agent whose policy cannot be read is shipped,
// because the engine may have it already.
func (c *Choice) shipsStored(policy string) bool {
	row, err := (&ledger.AgentRow{Policy: policy}).Parsed()
	return err != nil || c.Ships(&row.Settings)
}
