package daemon

import "os"

// beSomethingElse serves if a test has started this program as a fleet host.
func beSomethingElse() bool {
	folder := os.Getenv(fleetHostEnv)
	if folder == "" {
		return false
	}
	beFleetHost(folder)
	return true
}
