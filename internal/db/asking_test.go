package db_test

import (
	"context"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
)

// hostilePolicy has a schema and a rule that need far more work than they may
// do.
func hostilePolicy() ckpt.Policy {
	p := ckpt.DefaultPolicy()
	p.Schema = ckpt.JSON(`{"items":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}`)
	return p
}

// TestASaveEndsWithItsClientWhileItIsMadeReady: if the client goes away while
// the schema is still being checked, the save ends and leaves nothing. If the
// client waits, the state is saved with a finding.
func TestASaveEndsWithItsClientWhileItIsMadeReady(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir()+"/ckpt.db", newClock())
	o.Drift = drift.New()
	s := openWith(t, o)
	_, err := s.SetPolicy(t.Context(), ann, "a", hostilePolicy())
	must(t, err)
	state := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	ctx := ckpt.WithAsking(context.Background(), func() (context.Context, context.CancelFunc) { return gone, func() {} })
	for name, do := range map[string]func(context.Context, *db.Store) error{
		"save": func(ctx context.Context, s *db.Store) error {
			_, err := s.Save(ctx, ann, request("a", ckpt.KindRoutine, state))
			return err
		},
		"end_run": func(ctx context.Context, s *db.Store) error {
			_, _, err := s.EndRun(ctx, ann, ckpt.RunRef{Agent: "a"}, ckpt.EndRequest{Status: ckpt.RunSuspended, State: ckpt.JSON(state)})
			return err
		},
		"begin_operation": func(ctx context.Context, s *db.Store) error {
			_, _, err := s.BeginOperation(ctx, ann, ckpt.RunRef{Agent: "a"}, ckpt.OperationRequest{Key: "k", Name: "n", State: ckpt.JSON(state)})
			return err
		},
	} {
		err := do(ctx, s)
		if ckpt.CodeOf(err) != ckpt.CodeBusy || ckpt.AsError(err).OutcomeOrDefault() != ckpt.OutcomeNotSaved {
			t.Errorf("%s: %v", name, err)
		}
		if list := seqs(t, s, ann, "a"); len(list) != 0 {
			t.Fatalf("%s: there is %v", name, list)
		}
	}
	saved, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, state))
	must(t, err)
	if len(saved.Drift.Findings) != 1 || saved.Drift.Findings[0].Rule != drift.RuleSchemaStopped {
		t.Errorf("%+v", saved.Drift)
	}
}
