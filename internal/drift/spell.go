package drift

import ckpt "github.com/ckptsidecar/ckptsidecar"

// spell is a time in which a rule fires repeatedly. It is reported once at each severity,
// and then at growing intervals, so that one loop does not make a hundred findings. The
// rule continues to count all the time.
type spell struct {
	level              ckpt.Severity // the last reported severity
	heldAt, until, gap int64         // in steps
}

// tells returns whether to report that the rule fires now. A spell is over when the rule
// has not fired for the length of the cooldown.
func (s *spell) tells(severity ckpt.Severity, now, cooldown int64) bool {
	if s.level != "" && now-s.heldAt > cooldown {
		*s = spell{}
	}
	s.heldAt = now
	switch {
	case severity.Rank() > s.level.Rank():
		s.gap = max(s.gap, cooldown)
	case now < s.until:
		return false
	default:
		s.gap = min(2*s.gap, maxCooldown)
	}
	s.level, s.until = severity, now+s.gap
	return true
}
