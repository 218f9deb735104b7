package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// New is the watch that the store uses.
func New() ckpt.DriftWatch { return &watch{} }

// watch has no state but what it has compiled.
type watch struct{}

// Step makes the print of a step.
func (w *watch) Step(p *ckpt.Policy, r ckpt.RuleRun, s *ckpt.Step) ckpt.StepPrint {
	return printOf(s)
}

// State makes the print of a state.
func (w *watch) State(p *ckpt.Policy, r ckpt.RuleRun, state, previous []byte, contentType string) ckpt.StatePrint {
	var print ckpt.StatePrint
	printState(&print, state, contentType)
	return print
}

// Check refuses what cannot be used.
func (w *watch) Check(p *ckpt.Policy) error { return nil }

// Rules are the rules as a policy makes them.
func (w *watch) Rules(p *ckpt.Policy) []ckpt.DriftRule { return nil }

// Watch begins to watch a run.
func (w *watch) Watch(p *ckpt.Policy, past ckpt.RunPast) ckpt.RunWatch { return newRun(p, past) }
