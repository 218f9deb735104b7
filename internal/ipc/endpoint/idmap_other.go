//go:build !linux

package endpoint

// CheckIdentityMap has nothing to check where there are no user namespaces.
func CheckIdentityMap() error { return nil }
