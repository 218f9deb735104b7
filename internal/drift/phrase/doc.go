// Package phrase has the wording that findings share: counts, sizes, texts cut to a
// length.
//
// This package may import the standard library only.
package phrase
