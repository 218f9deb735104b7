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

// heal asserts the terms of this host's runs again, and stops claims until a person has accepted that the engine went back.
func (h *healer) heal(ctx context.Context, e *pg.Engine, db string) error {
	h.log.Error("the fleet's engine went back: no host claims by itself until a person has run `ckptsidecar fleet check --accept`")
	if err := e.NoteBack(ctx, db); err != nil {
		return err
	}
	runs, err := h.runs(ctx)
	if err != nil {
		return err
	}
	uids, err := e.Reassert(ctx, db, fleet.Given(runs, h.taken()))
	for _, uid := range uids {
		h.log.Error("the fleet's engine had lost the claim of a run of this host; it is claimed again under the same term", "run", uid)
	}
	return err
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
func (s *shipper) keepHealer() {
	s.healer = &healer{runs: s.reader.Terms, taken: s.takenNow, log: s.log}
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
// does so only until a person has accepted that the engine went back.
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
	noticed, err := e.Noticed(ctx)
	if len(noticed) == 0 {
		all = all[:len(says)]
	}
	return all, err
}

// healed refuses a claim after the engine went back: another host may have claimed the run before.
func healed(ctx context.Context, e *pg.Engine, run *fleet.Claimable) error {
	noticed, err := e.Noticed(ctx)
	if err != nil || len(noticed) == 0 {
		return err
	}
	return &ckpt.Error{Code: ckpt.CodeConflict, RetryAfter: 5 * time.Second, Message: "the fleet's engine went back, as these hosts noticed: " +
		strings.Join(noticed, ", ") + "; so another host may own run " + run.Run + " of " + run.Agent + ", and nobody claims by himself until an " +
		"administrator has run `ckptsidecar fleet check --accept`; an administrator may add --force"}
}
