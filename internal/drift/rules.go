package drift

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// Rules returns the rules that come with the program, with the settings of a policy.
func (w *watch) Rules(p *ckpt.Policy) []observer.Rule {
	set := settingsOf(p)
	list := make([]observer.Rule, 0, len(catalogue))
	for i := range catalogue {
		rule := &catalogue[i]
		list = append(list, observer.Rule{
			Rule: rule.name, Family: rule.family, About: rule.about, Unit: rule.unit, OverWhen: rule.overWhen,
			Detector: set.rules[rule.name].detector(),
		})
	}
	return list
}
