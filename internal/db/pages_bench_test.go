package db_test

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// BenchmarkStepPages reads the steps of a run with 100,000 steps: a page in the
// middle, a page of failed steps, and all of them page by page.
func BenchmarkStepPages(b *testing.B) {
	s := openDrifty(b).Store
	run := ckpt.RunRef{Agent: "a", Run: "r"}
	if _, _, err := s.StartRun(b.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "r"}); err != nil {
		b.Fatal(err)
	}
	if err := s.ExecForTest(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
		INSERT INTO steps (run_id, key, name, status, args, result, started_at) SELECT 1, i, 'bash', CASE WHEN i % 50 THEN 'succeeded' ELSE 'failed' END,
			printf('{"command":"%0200d"}', i), '"done"', '2026-03-01T10:00:00.000Z' FROM n`); err != nil {
		b.Fatal(err)
	}
	middle := ckpt.ListFilter{Limit: 50, Before: someCursor(b, s, run)}
	for name, f := range map[string]ckpt.ListFilter{"one": middle, "failed": {Status: "failed", Limit: 50, Before: middle.Before}, "open": {Status: "started", Limit: 50}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Steps(b.Context(), ann, run, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for f := (ckpt.ListFilter{Limit: ckpt.MaxLimit}); ; {
				page, err := s.Steps(b.Context(), ann, run, f)
				if err != nil {
					b.Fatal(err)
				}
				if n += len(page.Steps); page.Next == "" {
					break
				}
				f.Before = string(page.Next)
			}
			if n != 100_000 {
				b.Fatalf("%d steps", n)
			}
		}
	})
}

// someCursor returns the cursor of the fiftieth page of 1,000.
func someCursor(b *testing.B, s *db.Store, run ckpt.RunRef) string {
	f := ckpt.ListFilter{Limit: ckpt.MaxLimit}
	for range 50 {
		page, err := s.Steps(b.Context(), ann, run, f)
		if err != nil {
			b.Fatal(err)
		}
		f.Before = string(page.Next)
	}
	return f.Before
}
