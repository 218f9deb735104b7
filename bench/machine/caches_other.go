//go:build !linux

package main

import "errors"

// dropCaches works only on Linux.
func dropCaches() error { return errors.ErrUnsupported }
