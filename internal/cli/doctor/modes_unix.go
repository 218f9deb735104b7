//go:build unix

package doctor

// lookModes reports the files that let too many in.
func lookModes(list ...private) (found []finding) {
	for _, p := range list {
		found = append(found, lookMode(p)...)
	}
	return found
}
