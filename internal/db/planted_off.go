//go:build !planted

package db

// The mistakes that the harness of internal/faulttest must find. Here there are
// none, and the compiler takes the places where they would be away.
const (
	synchronous         = "2" // FULL
	insertKey           = `INSERT` + intoKeys
	plantedEarlyAnswers = false
	plantedNoKeys       = false
	plantedNoFence      = false
	plantedNoHash       = false
)
