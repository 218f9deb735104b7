package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// TestNoQuestionWaitsForEver: if the engine falls silent and the connection stays, what a
// shipper asks ends with an error, so that it connects anew.
func TestNoQuestionWaitsForEver(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	migrated(t, s.Database("fleet")).Close()
	relay := s.Relay()
	runs := []fleet.Name{{Owner: "uid:1", Agent: "a", Run: "main", UID: "r1"}}
	questions := map[string]func(context.Context, *pg.Engine) error{
		"beat":     func(ctx context.Context, e *pg.Engine) error { return e.Beat(ctx, "db1") },
		"taken":    func(ctx context.Context, e *pg.Engine) error { _, err := e.Taken(ctx, "db1"); return err },
		"lacks":    func(ctx context.Context, e *pg.Engine) error { _, err := e.Lacks(ctx, runs); return err },
		"holds":    func(ctx context.Context, e *pg.Engine) error { _, err := e.Holds(ctx, "db1", runs); return err },
		"strays":   func(ctx context.Context, e *pg.Engine) error { _, err := e.Strays(ctx, "db1", runs); return err },
		"erasures": func(ctx context.Context, e *pg.Engine) error { _, err := e.Erasures(ctx); return err },
	}
	type ended struct {
		what string
		err  error
	}
	answers := make(chan ended, len(questions))
	asking := map[string]*pg.Engine{}
	for what := range questions {
		asking[what] = dial(t, relay.URL("fleet"))
		register(t, asking[what], "db1")
	}
	relay.Hold(t)
	for what, ask := range questions {
		go func() { answers <- ended{what, ask(t.Context(), asking[what])} }()
	}
	late := time.After(3 * time.Minute) // each question has 30 s
	for range questions {
		select {
		case a := <-answers:
			if a.err == nil {
				t.Errorf("%s is answered by a silent engine", a.what)
			}
			delete(questions, a.what)
		case <-late:
			for what := range questions {
				t.Errorf("%s waits for ever", what)
			}
			return
		}
	}
}
