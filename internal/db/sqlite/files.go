package sqlite

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// companions are the suffixes of a database's files, itself included.
var companions = []string{"", "-wal", "-shm"}

// reserveSuffix is the suffix of the reserve's file, after the database's name.
const reserveSuffix = "-reserve"

// fill writes bytes that no file system can compress.
func fill(f *os.File, from, to int64) error {
	chunk := make([]byte, 64<<10)
	source := rand.NewChaCha8([32]byte{byte(from >> 16)})
	for from < to {
		part := chunk[:min(to-from, int64(len(chunk)))]
		_, _ = source.Read(part)
		if _, err := f.WriteAt(part, from); err != nil {
			return err
		}
		from += int64(len(part))
	}
	return f.Sync()
}

// removeBeginning removes what a folder contains whose name begins so. filepath.Glob would read a bracket in the folder's
// own name as a pattern.
func removeBeginning(folder, prefix string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, entry.Name())))
		}
	}
	return err
}
