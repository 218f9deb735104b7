package endpoint

import (
	"os"
	"path/filepath"
	"slices"
)

// Usual returns the default endpoints that are known, the user's first, then the system's.
func Usual() []string {
	var list []string
	for _, p := range []string{Default(false), Default(true)} {
		if p != "" && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// OwnDatabase returns the database of the user's own daemon, "" if there is none in the usual place.
func OwnDatabase() string {
	home := stateHome()
	if home == "" {
		return ""
	}
	path := filepath.Join(home, "ckptsidecar", "ckpt.db")
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// absEnv ignores relative values, as the XDG specification requires.
func absEnv(name string) string {
	if v := os.Getenv(name); filepath.IsAbs(v) {
		return v
	}
	return ""
}
