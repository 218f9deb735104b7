package endpoint

import (
	"os"
	"slices"
)

// Candidates are the endpoints a client tries, in order: the one that
// CKPTSIDECAR_SOCKET names, the user's, the system's.
func Candidates() []string {
	var list []string
	for _, p := range []string{os.Getenv(EnvSocket), Default(false), Default(true)} {
		if p != "" && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}
