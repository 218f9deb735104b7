package figures

import (
	"math"
	"slices"
)

// Sample is the result of one measurement of a system.
type Sample struct {
	Rate float64 // saves per second
	P50  float64 // milliseconds
	P99  float64
	CPU  float64 // milliseconds of processor time per save, of the system and its client
}

// NewSample makes a sample from the times of the saves that ended in a span of seconds.
func NewSample(micros []int64, seconds float64) Sample {
	sorted := slices.Sorted(slices.Values(micros))
	return Sample{
		Rate: float64(len(sorted)) / seconds,
		P50:  float64(quantile(sorted, 0.50)) / 1000,
		P99:  float64(quantile(sorted, 0.99)) / 1000,
	}
}

// quantile returns the smallest value such that at least the part q of all values are not larger.
func quantile(sorted []int64, q float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(at, 0)]
}

// Median returns the middle value, or the mean of the two in the middle; NaN if there are no
// values.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Series is the samples of one system in one cell, by round. A sample is nil if the system was not
// measured in that round.
type Series []*Sample

// Median returns the median of each figure; false if there is no sample.
func (s Series) Median() (Sample, bool) {
	of := func(figure func(*Sample) float64) float64 {
		var all []float64
		for _, one := range s {
			if one != nil {
				all = append(all, figure(one))
			}
		}
		return Median(all)
	}
	m := Sample{
		Rate: of(func(s *Sample) float64 { return s.Rate }),
		P50:  of(func(s *Sample) float64 { return s.P50 }),
		P99:  of(func(s *Sample) float64 { return s.P99 }),
		CPU:  of(func(s *Sample) float64 { return s.CPU }),
	}
	return m, !math.IsNaN(m.Rate)
}

// Ratio returns the median of the ratios of ours to theirs inside a round, because anything that
// made a round slow made both slow. It returns false if no round has both.
func Ratio(ours, theirs Series) (float64, bool) {
	var all []float64
	for round := range min(len(ours), len(theirs)) {
		if ours[round] != nil && theirs[round] != nil && theirs[round].Rate > 0 {
			all = append(all, ours[round].Rate/theirs[round].Rate)
		}
	}
	m := Median(all)
	return m, !math.IsNaN(m)
}
