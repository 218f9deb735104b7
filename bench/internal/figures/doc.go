// Package figures turns measurements into the reported figures: quantiles, medians over rounds,
// ratios inside a round, and the bars of the issue. It is pure.
//
// This package may import the standard library only.
package figures
