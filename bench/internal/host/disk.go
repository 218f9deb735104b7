package host

import (
	"io/fs"
	"path/filepath"
	"slices"
)

// DiskUse returns how many bytes of disk the files below a folder take, except for files with
// certain names.
func DiskUse(dir string, without ...string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || slices.Contains(without, d.Name()) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += allocated(info)
		}
		return err
	})
	return sum, err
}
