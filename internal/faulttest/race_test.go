//go:build race

package faulttest

// buildFlags make the daemon look for data races where the tests do. A daemon
// that has found one says so in its log, which fails the test.
var buildFlags = []string{"-race"}
