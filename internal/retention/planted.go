//go:build planted

package retention

import "os"

// plantedTooFew is how many routine checkpoints too few are kept: a mistake that
// the harness of internal/faulttest must find.
var plantedTooFew = tooFew()

func tooFew() int {
	if os.Getenv("CKPTSIDECAR_PLANTED") == "retention" {
		return 1
	}
	return 0
}
