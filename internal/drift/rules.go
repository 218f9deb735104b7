package drift

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Rules are the rules that come with the program, as a policy makes them.
func (w *watch) Rules(p *ckpt.Policy) []ckpt.DriftRule {
	set := settingsOf(p)
	list := make([]ckpt.DriftRule, 0, len(catalogue))
	for i := range catalogue {
		rule := &catalogue[i]
		list = append(list, ckpt.DriftRule{
			Rule: rule.name, Family: rule.family, About: rule.about, Unit: rule.unit,
			Detector: set.rules[rule.name].detector(),
		})
	}
	return list
}
