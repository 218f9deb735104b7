package main

import (
	"slices"
	"strconv"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// figures are what one measurement gave: how often a second, and how long one
// took, in milliseconds.
type figures struct {
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
}

// figuresOf sums up times in milliseconds, all of which passed within elapsed.
func figuresOf(times []float64, elapsed time.Duration) figures {
	slices.Sort(times)
	f := figures{P50: rounded(quantile(times, 0.5)), P95: rounded(quantile(times, 0.95)), P99: rounded(quantile(times, 0.99))}
	if elapsed > 0 {
		f.PerSecond = rounded(float64(len(times)) / elapsed.Seconds())
	}
	return f
}

// medians takes the median of each of the figures, over rounds.
func medians(rounds []figures) figures {
	return figures{
		PerSecond: medianOf(rounds, func(f figures) float64 { return f.PerSecond }),
		P50:       medianOf(rounds, func(f figures) float64 { return f.P50 }),
		P95:       medianOf(rounds, func(f figures) float64 { return f.P95 }),
		P99:       medianOf(rounds, func(f figures) float64 { return f.P99 }),
	}
}

func medianOf[T any](list []T, get func(T) float64) float64 {
	values := make([]float64, len(list))
	for i, v := range list {
		values[i] = get(v)
	}
	return rounded(median(values))
}

// median is the middle value, and between two the mean of both; 0 of none.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 0:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[n/2]
}

// quantile is the value that a share q of all does not exceed: the nearest
// rank, so always a time that was measured; 0 of none.
func quantile(sorted []float64, q float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	rank := int(q * float64(n))
	if float64(rank) < q*float64(n) {
		rank++
	}
	return sorted[min(max(rank, 1), n)-1]
}

// ratio is a to b; 0 where there is no b.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return rounded(a / b)
}

// rounded keeps four digits that matter: more would be noise.
func rounded(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return r
}

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rateText is a rate for people: three digits that matter.
func rateText(v float64) string {
	if v >= 10_000 {
		return strconv.FormatFloat(v/1000, 'f', 1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// timesText is a ratio for people.
func timesText(v float64) string { return "× " + term.Digits(v) }
