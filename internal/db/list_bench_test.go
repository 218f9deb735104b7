package db_test

import (
	"fmt"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// BenchmarkListAll reads all checkpoints of an agent page by page. They belong to one run, ten thousand runs or a
// hundred thousand runs.
func BenchmarkListAll(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, _ := open(b)
			keepAll(b, s, "a")
			for i := range n {
				save(b, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
			}
			for b.Loop() {
				left := n
				for f := (ckpt.CheckpointFilter{Agent: "a", Limit: ckpt.MaxLimit}); ; {
					page, err := s.Checkpoints(b.Context(), ann, f)
					if err != nil {
						b.Fatal(err)
					}
					if left -= len(page.Checkpoints); page.Next == "" {
						break
					}
					f.Before = string(page.Next)
				}
				if left != 0 {
					b.Fatalf("%d are missing", left)
				}
			}
		})
	}
}
