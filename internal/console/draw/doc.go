// Package draw writes and draws what the pages of the console show: sizes, times and
// statuses as words, icons, the lanes of runs, the flight recorder, the tree of forks. It is
// pure: it turns values into text and SVG. It escapes every text that comes from other
// programs or people.
//
// This package may import the root package and internal/survey.
package draw
