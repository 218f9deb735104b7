package journal

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Choice says what to read for the engine.
type Choice struct {
	ByPolicy bool         // only agents whose policies ask for the fleet
	Also     []fleet.Name // agents, and whole runs, that are read although no row names them
}

// Ships says whether agents with a policy are shipped: those whose writes wait for the engine, or
// whose runs are taken over by other hosts automatically.
func (c *Choice) Ships(p *ckpt.Policy) bool { return !c.ByPolicy || TakesNames(p) }

// TakesNames says whether the runs of agents with a policy have names of their own in the whole
// fleet. The other runs begin without asking the engine, so two hosts can have a run of one name.
func TakesNames(p *ckpt.Policy) bool {
	return p.Durability == ckpt.DurabilityFleet || p.Takeover == ckpt.TakeoverAuto
}

// shipsStored is Ships for a stored policy. It is true for a policy that cannot be read, because
// the engine may have the agent already.
func (c *Choice) shipsStored(policy string) bool {
	row, err := (&ledger.AgentRow{Policy: policy}).Parsed()
	return err != nil || c.Ships(&row.Settings)
}
