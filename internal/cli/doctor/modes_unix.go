//go:build unix

package doctor

// lookModes reports the files whose permissions are too wide.
func lookModes(list ...private) (found []finding) {
	for _, p := range list {
		found = append(found, lookMode(p)...)
	}
	return found
}
