package journal_test

import (
	"fmt"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// BenchmarkSince reads what the shipper reads for one batch under load: one save of 2 KiB for each of 16 agents,
// which replaces an older one.
func BenchmarkSince(b *testing.B) {
	s, err := db.Open(b.Context(), db.Options{Path: filepath.Join(b.TempDir(), "ckpt.db"), Retention: retention.Plan, Resume: resume.Make, Version: "test"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	reader := journal.New(s.Core)
	var mark fleet.Mark
	for round := range 10 {
		if mark, _, err = reader.Where(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		for agent := range 16 {
			state := fmt.Appendf(nil, `{"round":%d,"text":"%02000d"}`, round, agent)
			r := &ckpt.SaveRequest{Agent: fmt.Sprint("a", agent), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state}
			if _, err := s.Save(b.Context(), ann, r); err != nil {
				b.Fatal(err)
			}
		}
	}
	has := &segments{}
	has.forget()
	c := batchOf(b, reader, mark, has)
	for i := range c.Runs {
		has.note(&c.Runs[i])
	}
	b.ReportAllocs()
	for b.Loop() {
		batchOf(b, reader, mark, has)
	}
}

func batchOf(b *testing.B, reader *journal.Journal, mark fleet.Mark, has journal.Known) *fleet.Changes {
	b.Helper()
	c, err := reader.Since(b.Context(), mark, fleet.Limits{Rows: 4000, Bytes: 8 << 20}, journal.Choice{}, has)
	if err != nil || len(c.Runs) != 16 {
		b.Fatalf("a batch of %d runs, want 16: %v", len(c.Runs), err)
	}
	return c
}
