//go:build !planted && unix

package faulttest

// buildTags are those of the program under test: the same as of the tests.
const buildTags = ""
