// Package figures turns what was measured into what is said of it: quantiles,
// medians over rounds, ratios inside a round, and the bars of the issue. It is
// pure.
//
// This package may import the standard library only.
package figures
