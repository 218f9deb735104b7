package daemon

import "os"

// beSomethingElse serves where a test has started this program for that.
func beSomethingElse() bool {
	folder := os.Getenv(fleetHostEnv)
	if folder == "" {
		return false
	}
	beFleetHost(folder)
	return true
}
