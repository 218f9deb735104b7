package files

import (
	"slices"
	"sync"
	"time"
)

// Some contents are similar although no tree names one as a version of the other: lock files of
// several packages, or copied notebooks. Each content is known by some features. If it shares
// enough of them with an earlier content, it is compared with that one.

const (
	// alikeFrom is the least size in bytes of a content that is compared. For a smaller content,
	// the gain is less than the size of its list of pieces.
	alikeFrom = 4 << 10
	// featuresEach is how many features a content has.
	featuresEach = 16
	// featuresShared is how many features two contents must share to be compared.
	featuresShared = 2
	// featureEvery: on average, one in this many places of a content can be a feature.
	featureEvery = 1 << 6
	// mostAlike is the most contents whose features are kept, about 10 MB in all.
	mostAlike = 8192
	// mostShare is the most contents that are remembered for one feature.
	mostShare = 8
)

// features computes the features of a content: the smallest of the hashes of the 64 bytes before
// certain places, which the bytes themselves select. The part of their features that two contents
// share is about as large as the part of their bytes that they share.
func features(data []byte) []uint64 {
	if len(data) < alikeFrom {
		return nil
	}
	var h uint64
	list := make([]uint64, 0, len(data)/featureEvery*2)
	for i, b := range data {
		h = h<<1 + gear[b]
		if h>>58 == 0 && i >= 64 { // one in featureEvery: the upper six bits depend on the 64 bytes before
			list = append(list, h*0x9e3779b97f4a7c15)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.Clone(list[:min(len(list), featuresEach)])
}

// gear assigns a number to each byte.
var gear = func() (g [256]uint64) {
	x := uint64(0x2545f4914f6cdd1d)
	for i := range g { // splitmix64
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		g[i] = z ^ z>>31
	}
	return g
}()

// alikes are the contents of agents that were recently stored whole, by their features.
type alikes struct {
	mu    sync.Mutex
	of    map[string]*alikeOfAgent // by owner and name
	count int
}

type alikeOfAgent struct {
	sums  map[uint64][]string // by feature; the newest last
	count int
	used  time.Time
}

// find is the content of an agent that shares the most features, "" if none shares enough.
func (a *alikes) find(agent string, features []uint64, now time.Time) (sum string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.of[agent]
	if known == nil {
		return ""
	}
	known.used = now
	shared := map[string]int{}
	most := featuresShared - 1
	for _, f := range features {
		for _, s := range known.sums[f] {
			if shared[s]++; shared[s] > most {
				sum, most = s, shared[s]
			}
		}
	}
	return sum
}

// add makes a content available to find.
func (a *alikes) add(agent, sum string, features []uint64, now time.Time) {
	if len(features) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count >= mostAlike { // start over: only recent contents matter
		a.of, a.count = nil, 0
	}
	if a.of == nil {
		a.of = map[string]*alikeOfAgent{}
	}
	known := a.of[agent]
	if known == nil {
		known = &alikeOfAgent{sums: map[uint64][]string{}}
		a.of[agent] = known
	}
	known.used = now
	known.count++
	a.count++
	for _, f := range features {
		list := known.sums[f]
		if slices.Contains(list, sum) {
			continue
		}
		if len(list) == mostShare {
			list = slices.Delete(list, 0, 1)
		}
		known.sums[f] = append(list, sum)
	}
}

// alikeName is the key of an agent in alikes.
func alikeName(owner, agent string) string { return owner + "\x00" + agent }

func (a *alikes) forget(agent string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(agent)
}

func (a *alikes) drop(agent string) {
	if known := a.of[agent]; known != nil {
		a.count -= known.count
		delete(a.of, agent)
	}
}

// forgetIdle drops agents that were not used for a long time.
func (a *alikes) forgetIdle(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for agent, known := range a.of {
		if now.Sub(known.used).Abs() > knownFor {
			a.drop(agent)
		}
	}
}
