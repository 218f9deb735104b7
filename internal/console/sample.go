package console

import (
	"context"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// pulse keeps what the daemon reported about itself in the last hour. Earlier values are
// unknown, and the pulse does not invent any.
type pulse struct {
	mu      sync.Mutex
	buckets []bucket
	status  *ckpt.Status
	last    sample
	count   int // the number of needs
	looked  time.Time
}

// sample has the values of one status.
type sample struct {
	at                 time.Time
	writes             int64
	p50, p99           float64
	stored, checkpoint int64
	findings           int64
}

// bucket has half a minute of samples: the lines change that often.
type bucket struct {
	began      time.Time
	rate, peak float64 // writes per second
	seconds    float64
	p99        float64
	stored     float64
	kept       float64
	findings   float64
}

const (
	sampleEvery = 2 * time.Second
	idleEvery   = 30 * time.Second // while nobody looks at a page
	bucketLasts = 30 * time.Second
	share       = 200 // the pause between two requests is this many times the duration of one
	buckets     = 120
)

// sample asks for the status until the context ends.
func (c *Console) sample(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		c.sampleOnce(ctx)
		// Ask less often if an answer costs the daemon more: at most half a percent of a core.
		wait := max(sampleEvery, min(share*time.Since(began), idleEvery))
		if c.pulse.idle(c.options.Now()) {
			wait = idleEvery
		}
		timer.Reset(wait)
	}
}

func (c *Console) sampleOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Patience)
	defer cancel()
	err := c.daemon.learn(ctx)
	if err == nil {
		var st *ckpt.Status
		if st, err = c.daemon.all().Status(ctx); err == nil {
			c.daemon.isBack()
			c.pulse.add(c.options.Now(), st)
		}
	}
	if away(err) {
		c.daemon.isAway(c.options.Now())
		c.feed.lost()
	}
}

// look records that a person looks at a page.
func (p *pulse) look(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = now
}

func (p *pulse) idle(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.looked) > idleEvery
}

func (p *pulse) add(now time.Time, st *ckpt.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := sample{at: now, writes: st.Writer.Operations, p50: st.Writer.CommitP50, p99: st.Writer.CommitP99, stored: st.Stored}
	for _, n := range st.Counts {
		s.checkpoint += n
	}
	for _, f := range st.Drift.Findings {
		s.findings += f.Count
	}
	before := p.last
	p.status, p.last = st, s
	if n := len(p.buckets); n == 0 || now.Sub(p.buckets[n-1].began) >= bucketLasts {
		p.buckets = append(p.buckets, bucket{began: now})
		if len(p.buckets) > buckets {
			p.buckets = p.buckets[1:]
		}
	}
	b := &p.buckets[len(p.buckets)-1]
	b.p99, b.stored, b.kept, b.findings = max(b.p99, s.p99), float64(s.stored), float64(s.checkpoint), float64(s.findings)
	// A daemon that was restarted counts from 0.
	if seconds := now.Sub(before.at).Seconds(); !before.at.IsZero() && seconds > 0 && seconds < 60 && s.writes >= before.writes {
		rate := float64(s.writes-before.writes) / seconds
		b.rate = (b.rate*b.seconds + rate*seconds) / (b.seconds + seconds)
		b.seconds += seconds
		b.peak = max(b.peak, rate)
	}
}

// series returns one number of all buckets.
func (p *pulse) series(of func(bucket) float64) []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	values := make([]float64, len(p.buckets))
	for i, b := range p.buckets {
		values[i] = of(b)
	}
	return values
}

// now returns the newest status, nil before the first.
func (p *pulse) now() *ckpt.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *pulse) needs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *pulse) setNeeds(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = n
}

// state returns the daemon's state as a word with a shape.
func (p *pulse) state() draw.Badge {
	st := p.now()
	switch {
	case st == nil:
		return draw.Badge{Icon: "play", Word: "not asked yet"}
	case st.State == "ready":
		return draw.Badge{Class: "live", Icon: "live", Word: "ready"}
	case st.State == "degraded":
		return draw.Badge{Class: "warn", Icon: "warn", Word: "degraded"}
	}
	return draw.Badge{Class: "crit", Icon: "crit", Word: draw.Dashes(st.State)}
}
