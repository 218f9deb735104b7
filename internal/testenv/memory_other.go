//go:build !linux

package testenv

// folderInMemory knows of no file system in memory here.
func folderInMemory() string { return "" }
