package host

import "github.com/ckptsidecar/ckptsidecar/internal/fleet"

// knownMost is how many segments are remembered as shipped.
const knownMost = 1 << 20

// known are the segments that the engine has, as far as this connection has shipped them,
// by run. A run without a segment is one of which the engine surely has none.
type known map[string]map[int64]bool

// Has says whether the engine has a segment of a run.
func (k known) Has(runUID string, segment int64) bool { return k[runUID][segment] }

// HasNone says whether the engine surely has no segment of a run.
func (k known) HasNone(runUID string) bool {
	has, is := k[runUID]
	return is && len(has) == 0
}

// note notes what the engine has after a batch.
func (k known) note(c *fleet.Changes) {
	if len(k) > knownMost/16 {
		clear(k)
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		has := k[r.UID]
		if has == nil || len(has) > knownMost {
			has = map[int64]bool{}
		}
		for _, p := range r.Pieces {
			has[p.ID] = true
		}
		if r.Trim {
			has = left(has, r.Segments)
		}
		if len(has) > 0 || r.Trim && len(r.Segments) == 0 {
			k[r.UID] = has
		} else if !k.HasNone(r.UID) { // it may have some that were shipped before
			delete(k, r.UID)
		}
	}
}

// left are those of has that are still there.
func left(has map[int64]bool, there []int64) map[int64]bool {
	m := map[int64]bool{}
	for _, id := range there {
		if has[id] {
			m[id] = true
		}
	}
	return m
}
