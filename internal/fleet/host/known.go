package host

import "github.com/ckptsidecar/ckptsidecar/internal/fleet"

// knownMost is the most segments of one run that are remembered as shipped.
const knownMost = 1 << 20

// known are the segments of each run that the engine has, as far as this connection has
// shipped them. If a run has an entry without segments, the engine certainly has none of
// the run.
type known map[string]map[int64]bool

// Has reports whether the engine has a segment of a run.
func (k known) Has(runUID string, segment int64) bool { return k[runUID][segment] }

// HasNone reports whether the engine certainly has no segment of a run.
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
		} else if !k.HasNone(r.UID) { // the engine may have some that were shipped before
			delete(k, r.UID)
		}
	}
}

// left returns the segments of has that still exist.
func left(has map[int64]bool, there []int64) map[int64]bool {
	m := map[int64]bool{}
	for _, id := range there {
		if has[id] {
			m[id] = true
		}
	}
	return m
}
