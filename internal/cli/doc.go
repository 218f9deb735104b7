// Package cli holds what the parts of the command line share: errors that carry
// an exit code.
//
// This package may import the standard library only.
package cli
