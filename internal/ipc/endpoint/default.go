package endpoint

import "slices"

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
