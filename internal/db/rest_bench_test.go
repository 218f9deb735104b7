package db

import (
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// BenchmarkRest is what the hash of the rest costs each save.
func BenchmarkRest(b *testing.B) {
	c := &ledger.CheckpointRow{Parent: "01a202d3-3556-7d0b-a440-45302c5408b8", CreatedAt: ckpt.At(time.Now()), ContentType: ckpt.ContentTypeJSON, Metadata: "{}"}
	for b.Loop() {
		_ = c.Rest()
	}
}
