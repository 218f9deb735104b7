package doctor

// lookModes finds nothing: Windows does not store permissions in modes, and files inherit
// those of the folder.
func lookModes(...private) []finding { return nil }
