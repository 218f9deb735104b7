package ckptsidecar

// Durability is where a write must be stored before it is acknowledged.
type Durability string

// The durabilities.
const (
	DurabilityLocal Durability = "local" // on this host's disk
	DurabilityFleet Durability = "fleet" // in the engine of the fleet, and replicated there
)

// OnOutage is how the daemon answers a write that the fleet's engine has not confirmed.
type OnOutage string

// The answers in an outage.
const (
	OutageRefuse  OnOutage = "refuse"  // not_replicated: the write is on this host's disk
	OutageDegrade OnOutage = "degrade" // a success whose durability is local
)

// Takeover says how a run gets to another host when the lease of its own host is over.
type Takeover string

// The takeovers.
const (
	TakeoverAuto   Takeover = "auto"   // a process that resumes the run on another host claims it
	TakeoverManual Takeover = "manual" // a person claims it
	TakeoverNever  Takeover = "never"  // a person claims it, and must force it
)

// OnLeaseLost is what exec does with its agent when this host's lease is over.
type OnLeaseLost string

// The values of OnLeaseLost.
const (
	LeaseLostStop     OnLeaseLost = "stop"     // it stops the agent
	LeaseLostContinue OnLeaseLost = "continue" // the agent continues
)

// PolicyToRead returns the policy that a JSON policy is read into: the defaults without
// the members that follow from other members. Fill sets these after reading.
func PolicyToRead() Policy {
	p := DefaultPolicy()
	p.Takeover, p.OnLeaseLost = "", ""
	return p
}

// fillFleet sets the members that follow from other members. Runs that lose nothing can
// move automatically, and an agent must stop if its run can move.
func (p *Policy) fillFleet() {
	if p.Takeover == "" {
		p.Takeover = TakeoverManual
		if p.Durability == DurabilityFleet {
			p.Takeover = TakeoverAuto
		}
	}
	if p.OnLeaseLost == "" {
		p.OnLeaseLost = LeaseLostContinue
		if p.Takeover == TakeoverAuto {
			p.OnLeaseLost = LeaseLostStop
		}
	}
}

func (p *Policy) checkFleet() error {
	filled := *p
	filled.fillFleet()
	if p.Durability != DurabilityLocal && p.Durability != DurabilityFleet {
		return Errorf(CodeInvalid, "durability is %q: it must be local or fleet", cut(string(p.Durability)))
	}
	if p.OnOutage != OutageRefuse && p.OnOutage != OutageDegrade {
		return Errorf(CodeInvalid, "on_outage is %q: it must be refuse or degrade", cut(string(p.OnOutage)))
	}
	switch filled.Takeover {
	case TakeoverAuto, TakeoverManual, TakeoverNever:
	default:
		return Errorf(CodeInvalid, "takeover is %q: it must be auto, manual or never", cut(string(p.Takeover)))
	}
	switch {
	case filled.OnLeaseLost != LeaseLostStop && filled.OnLeaseLost != LeaseLostContinue:
		return Errorf(CodeInvalid, "on_lease_lost is %q: it must be stop or continue", cut(string(p.OnLeaseLost)))
	case filled.Takeover == TakeoverAuto && filled.OnLeaseLost == LeaseLostContinue:
		return Errorf(CodeInvalid, "takeover is auto and on_lease_lost is continue: "+
			"the run would have two owners; set on_lease_lost to stop, or takeover to manual")
	}
	return nil
}
