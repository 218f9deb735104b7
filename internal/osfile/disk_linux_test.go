package osfile

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestSpaceOf(t *testing.T) {
	for _, c := range []struct {
		of          unix.Statfs_t
		free, total int64
	}{
		{unix.Statfs_t{Bsize: 4096, Frsize: 4096, Bavail: 2, Blocks: 3}, 8192, 12288},
		{unix.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Bavail: 2, Blocks: 3}, 8192, 12288},
		{unix.Statfs_t{Bsize: 4096, Bavail: 2, Blocks: 3}, 8192, 12288},
	} {
		if free, total := spaceOf(&c.of); free != c.free || total != c.total {
			t.Errorf("%+v: %d bytes of %d are free", c.of, free, total)
		}
	}
}
