// Package mutants plants mistakes in builds of the product and shows which test
// finds each. The mistakes are descriptions in lists/*.txt, not code: a text of a
// source file and the text that stands in its place. The build reads the changed
// file through go's -overlay, so nothing wrong stands in the product's source.
//
// make mutants plants them all, one at a time. It runs the test that is named for
// each, and ends with 1 where a mistake survives that nobody has explained.
// TestEveryMutantFits is part of the usual tests. It fails where a description
// no longer fits the source: then change its text. Where code was only moved to
// another file, the text is found there.
//
// A list holds mutants like this one:
//
//	mutant epoch-not-checked
//	what   A writer of an older epoch may write.
//	file   internal/db/runs.go
//	- case *epoch < r.Epoch:
//	+ case false:
//	found  ./internal/db TestStaleOwnerIsFenced
//
// The lines that begin with - must stand in the file exactly once. They may begin
// and end in the middle of a line, and neither indentation nor empty lines matter. One
// mutant may change several places: repeat file, - and +. A mutant that no test
// needs to find says why instead of found:
//
//	stays  The other check, in the same transaction, refuses it as well.
//
// The package may import the standard library only. Tests of internal/faulttest
// import it.
package mutants
