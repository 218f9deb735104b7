//go:build !linux

package doctor

import (
	"context"
	"path/filepath"
	"strings"
)

// lookHardening works only on Linux.
func lookHardening(context.Context, *patient) []finding {
	return []finding{finding{Level: levelOK, What: "not looked at on this system", skipped: "not on this system"}}
}

// sameDisk compares the drive letters, if there are any.
func sameDisk(a, b string) bool {
	return filepath.VolumeName(a) != "" && strings.EqualFold(filepath.VolumeName(a), filepath.VolumeName(b))
}

// clockUntrusted works only on Linux.
func clockUntrusted() string { return "" }
