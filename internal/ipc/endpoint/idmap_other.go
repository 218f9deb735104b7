//go:build !linux

package endpoint

// CheckIdentityMap returns nil: this system has no user namespaces.
func CheckIdentityMap() error { return nil }
