//go:build !planted

package retention

// plantedTooFew is how many routine checkpoints too few are kept: a mistake that
// the harness of internal/faulttest must find, in a build for that alone.
const plantedTooFew = 0
