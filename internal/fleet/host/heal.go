package host

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// healer notices that the engine went back, on the first connection on which this host
// registers again. It then tells the engine again what the engine may have lost: the terms
// of the runs that this host has claimed.
type healer struct {
	wait  time.Duration                                  // how long claims wait for hosts that have not registered since
	runs  func(context.Context) ([]fleet.RunTerm, error) // the runs that claims and restores gave this host
	taken func() []fleet.Taken                           // returns the runs of this host that other hosts have claimed
	log   *slog.Logger

	mu     sync.Mutex
	engine string // the engine that has counted beats
	beats  int64  // the engine has heard from this host at least this often
	backs  int64  // how often the engine went back since the daemon began
}

// know sets what the word file says.
func (h *healer) know(engine string, beats int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.engine, h.beats = engine, beats
}

// knows returns what the word file should say.
func (h *healer) knows() int64 {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.beats
}

// register registers a host on a connection, and checks whether the engine went back. A nil
// healer does not check.
func (h *healer) register(ctx context.Context, e *pg.Engine, host fleet.Host) (id string, m fleet.Mark, err error) {
	if h == nil {
		return e.Register(ctx, host)
	}
	// Compare with the value from before the registration: other connections go on meanwhile
	// and raise h.beats.
	h.mu.Lock()
	engine, beats := h.engine, h.beats
	h.mu.Unlock()
	if id, m, err = e.Register(ctx, host); err != nil {
		return "", m, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if engine == id && e.WentBack(beats) {
		if err := h.heal(ctx, e, host.DB); err != nil {
			return "", m, err
		}
		h.beats = 0
		h.backs++
	}
	h.hear(id, e.Heard())
	return id, m, nil
}

// wentBack returns how often the engine was found to have gone back.
func (h *healer) wentBack() int64 {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.backs
}

// hear notes how often an engine has heard from this host at least. The caller holds the
// lock.
func (h *healer) hear(engine string, beats int64) {
	if h.engine != engine {
		h.engine, h.beats = engine, 0
	}
	h.beats = max(h.beats, beats)
}

// heal stops claims for a while, and asserts the terms of this host's runs again.
func (h *healer) heal(ctx context.Context, e *pg.Engine, db string) error {
	h.log.Error("the fleet's engine went back: no host claims by itself until all are back, or fleet.heal_wait is over", "heal_wait", h.wait.String())
	runs, err := h.runs(ctx)
	if err != nil {
		return err
	}
	given := fleet.Given(runs, h.taken())
	uids, err := e.Reassert(ctx, db, given)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		h.log.Error("the fleet's engine had lost the claim of a run of this host; it is claimed again under the same term", "run", uid)
	}
	return e.Heal(ctx, db, h.wait) // comes last: a host that sees the healing takes this host for one that is back
}

// acknowledged notes how often an engine says that it has heard from this host.
func (h *healer) acknowledged(engine string, beats int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hear(engine, beats)
}

// keepHealer lets the shipper notice that the engine went back, and loads what the word file
// says about that. It must be called before keepLease.
func (s *shipper) keepHealer(wait time.Duration) {
	s.healer = &healer{wait: wait, runs: s.reader.Terms, taken: s.takenNow, log: s.log}
	if s.wordFile == "" {
		return
	}
	w, err := readWordFile(s.wordFile)
	if err != nil {
		s.log.Warn("what the fleet's engine acknowledged before is not known", "error", err)
	}
	if w.Database == s.host.DB {
		s.healer.know(w.Engine, w.Beats)
		s.engineID, s.word, s.gap, s.kept = w.Engine, w.Mark, w.Gap, kept{w.Engine, w.Mark, w.Taken, w.Gap}
		s.tally.mark = w.Mark
	}
}

// remember adds what the engine said before about runs that other hosts have claimed. It
// does so only while an engine that went back is healed.
func (s *shipper) remember(ctx context.Context, e *pg.Engine, says []fleet.Taken) ([]fleet.Taken, error) {
	said := s.takenNow()
	if len(said) == 0 || s.healer == nil {
		return says, nil
	}
	given, err := s.reader.Terms(ctx)
	if err != nil {
		return nil, err
	}
	all := fleet.Remember(says, said, given)
	if len(all) == len(says) {
		return all, nil
	}
	missing, _, err := e.Healing(ctx)
	if len(missing) == 0 {
		all = all[:len(says)]
	}
	return all, err
}

// healed refuses a claim while an engine that went back is healed: a host that has not
// registered since may have claimed the run before.
func healed(ctx context.Context, e *pg.Engine, run *fleet.Claimable) error {
	missing, left, err := e.Healing(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	return &ckpt.Error{Code: ckpt.CodeConflict, RetryAfter: max(min(left, 5*time.Second), time.Second), Message: "the fleet's engine went back, so another host may own run " +
		run.Run + " of " + run.Agent + ": nobody claims by himself until these hosts have registered again: " + strings.Join(missing, ", ") +
		"; or for " + left.Round(time.Second).String() + " (fleet.heal_wait); an administrator may add --force"}
}
