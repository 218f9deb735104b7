// Package files finds the files below a folder, and reads those that have changed.
//
// List names them: it asks git if it can, and otherwise walks the folder with its own
// matcher for .gitignore. Scan reads them, and skips those that have not changed
// according to the index. It never runs a program from the folder, follows no link out
// of the folder, and writes nothing in it.
//
// This package may import the root package, internal/tree, internal/osfile, the
// standard library and golang.org/x/sys.
package files
