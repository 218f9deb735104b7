package drift

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// progress is the progress that the run declared.
type progress struct {
	declared   bool
	best, last float64
	grewAt     time.Time
	grewStep   int64 // the number of ended steps when it last grew
	grewSeq    int64 // the run's newest checkpoint when it last grew
	declareds  int64
	fellFrom   float64       // the value from which it last fell
	told       ckpt.Severity // the reported severity of no_progress since it last grew
}

// declare takes a declared progress, and returns whether it grew or fell.
func (p *progress) declare(value float64, now time.Time, step, seq int64) (grew, fell bool, before float64) {
	grew, fell, before = !p.declared || value > p.best, p.declared && value < p.last, p.last
	p.declared, p.last = true, value
	p.declareds++
	if grew {
		p.best, p.grewAt, p.grewStep, p.grewSeq, p.told = value, now, step, seq, ""
	}
	return grew, fell, before
}

// tierOf returns the highest tier that a value reaches, and what the tier needs.
func (s setting) tierOf(value float64) (ckpt.Severity, float64) {
	switch {
	case s.critical.value > 0 && value >= s.critical.value:
		return s.capped(ckpt.SeverityCritical), s.critical.value
	case s.warn.value > 0 && value >= s.warn.value:
		return s.capped(ckpt.SeverityWarn), s.warn.value
	}
	return "", 0
}

// over returns value as a fraction of a limit, 0 if there is no limit.
func over(value, limit float64) float64 {
	if limit <= 0 {
		return 0
	}
	return value / limit
}

func keysOf(key string) []string {
	if key == "" {
		return nil
	}
	return []string{key}
}
