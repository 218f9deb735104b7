//go:build !linux

package daemon

func beSomethingElse() bool { return false }
