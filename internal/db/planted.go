//go:build planted

package db

import "os"

// The mistakes that the harness of internal/faulttest must find, one at a time.
// No build has them but one that asks for them by its tag.
var (
	planted             = os.Getenv("CKPTSIDECAR_PLANTED")
	synchronous         = pick(planted == "normal", "1", "2")
	insertKey           = pick(plantedNoKeys, `INSERT OR REPLACE`, `INSERT`) + intoKeys
	plantedEarlyAnswers = planted == "early"
	plantedNoKeys       = planted == "keys"
	plantedNoFence      = planted == "fence"
	plantedNoHash       = planted == "hash"
)

func pick(yes bool, this, that string) string {
	if yes {
		return this
	}
	return that
}
