package endpoint

import (
	"os"
	"slices"
)

// Candidates returns the endpoints that a client tries, in order: the one in
// CKPTSIDECAR_SOCKET, the user's, the system's.
func Candidates() []string {
	var list []string
	for _, p := range []string{os.Getenv(EnvSocket), Default(false), Default(true)} {
		if p != "" && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}
