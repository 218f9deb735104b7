// Package draw writes and draws what the pages of the console show: sizes, times and
// statuses as words, icons, the lanes of runs, the flight recorder, the tree of forks. It is
// pure: values in, text and SVG out. What others have written is escaped here.
//
// This package may import the root package and internal/survey.
package draw
