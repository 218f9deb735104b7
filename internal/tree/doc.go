// Package tree defines what a list of files is: which paths it may hold, its canonical
// text, its id, and how two lists differ.
//
// The client that reads files and the store that keeps them agree through this package.
// Everything here is pure. This package may import the root package and the standard
// library only.
package tree
