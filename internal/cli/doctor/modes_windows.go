package doctor

// lookModes finds nothing: Windows keeps its permissions elsewhere, and those
// of the folder are inherited.
func lookModes(...private) []finding { return nil }
