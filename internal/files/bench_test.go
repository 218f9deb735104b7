package files

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// BenchmarkScan scans a folder in which three files have changed, and reads and
// writes the index. If BENCH_DIR names a folder on a disk, and the caches of
// the system can be dropped, it also measures with empty caches:
//
//	BENCH_DIR=/var/tmp go test ./internal/files -run none -bench Scan -benchtime 5x
func BenchmarkScan(b *testing.B) {
	for _, size := range []struct{ files, ignored int }{{2000, 0}, {50_000, 30_000}} {
		b.Run(fmt.Sprintf("files=%d", size.files), func(b *testing.B) {
			root := folder(b)
			if on := os.Getenv("BENCH_DIR"); on != "" {
				var err error
				root, err = os.MkdirTemp(on, "scan")
				must(b, err)
				b.Cleanup(func() { _ = os.RemoveAll(root) })
			}
			git(b, root, "init", "-q")
			write(b, root, ".gitignore", "out/\n")
			text := strings.Repeat("a line of some file\n", 40)
			for i := range size.files {
				write(b, root, fmt.Sprintf("d%d/e%d/f%d", i%100, i%7, i), text)
			}
			for i := range size.ignored {
				write(b, root, fmt.Sprintf("out/d%d/f%d", i%100, i), "")
			}
			git(b, root, "add", ".")
			s := later(root)
			s.Limits = tree.Limits{File: 4 << 20, Tree: 1 << 30, Files: 100_000}
			path := filepath.Join(b.TempDir(), "x.index")
			found, err := s.Scan(b.Context(), empty(root))
			must(b, err)
			must(b, empty(root).Remember(found).Write(path))
			n := 0
			scan := func(b *testing.B, before func()) {
				for b.Loop() {
					b.StopTimer()
					for i := range 3 {
						n++
						must(b, os.WriteFile(filepath.Join(root, fmt.Sprintf("d%d/e%d/f%d", i, i, i)), fmt.Appendf(nil, "%d", n), 0o644))
					}
					before()
					b.StartTimer()
					s.Ask(b.Context())
					index := ReadIndex(path, root)
					found, err := s.Scan(b.Context(), index)
					must(b, err)
					if found.Read != 3 || len(found.Tree.Entries) != size.files+1 {
						b.Fatalf("%d of %d files were read", found.Read, len(found.Tree.Entries))
					}
					must(b, index.Remember(found).Write(path))
				}
			}
			b.Run("warm", func(b *testing.B) { scan(b, func() {}) })
			b.Run("cold", func(b *testing.B) {
				if os.Getenv("BENCH_DIR") == "" || dropCaches() != nil {
					b.Skip("BENCH_DIR names no folder, or the caches may not be dropped")
				}
				scan(b, func() { must(b, dropCaches()) })
			})
		})
	}
}

// dropCaches flushes pending writes to the disk, and empties the caches of the
// system.
func dropCaches() error {
	if err := exec.Command("sync").Run(); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}
