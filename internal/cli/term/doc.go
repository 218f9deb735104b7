// Package term writes text for people: tables, colors, progress, and numbers and
// times in a form that is easy to read.
//
// This package may import the root.
package term
