// Package rewind brings the files of a folder back to the state in a tree.
//
// Make makes a plan and changes nothing. Journal.Apply carries out a plan: it stages
// new contents beside their places and renames them, and a journal outside the folder
// records how far it got. If the process is killed at any point, every file is in its
// old or its new state, and Journal.Continue finishes the rest.
//
// It touches nothing outside the folder: every name goes through os.Root, and no folder
// on the way may be a link.
//
// This package may import the root package, internal/tree, internal/osfile, the
// standard library and golang.org/x/sys.
package rewind
