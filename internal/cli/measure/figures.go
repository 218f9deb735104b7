package measure

import (
	"slices"
	"strconv"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// Figures are the result of one measurement: the rate per second, and quantiles of
// the times in milliseconds.
type Figures struct {
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
}

// FiguresOf summarizes times in milliseconds that were measured within elapsed.
func FiguresOf(times []float64, elapsed time.Duration) Figures {
	slices.Sort(times)
	f := Figures{P50: Rounded(quantile(times, 0.5)), P95: Rounded(quantile(times, 0.95)), P99: Rounded(quantile(times, 0.99))}
	if elapsed > 0 {
		f.PerSecond = Rounded(float64(len(times)) / elapsed.Seconds())
	}
	return f
}

// Medians returns the median of each figure over the rounds.
func Medians(rounds []Figures) Figures {
	return Figures{
		PerSecond: medianOf(rounds, func(f Figures) float64 { return f.PerSecond }),
		P50:       medianOf(rounds, func(f Figures) float64 { return f.P50 }),
		P95:       medianOf(rounds, func(f Figures) float64 { return f.P95 }),
		P99:       medianOf(rounds, func(f Figures) float64 { return f.P99 }),
	}
}

func medianOf[T any](list []T, get func(T) float64) float64 {
	values := make([]float64, len(list))
	for i, v := range list {
		values[i] = get(v)
	}
	return Rounded(Median(values))
}

// Median returns the middle value, or the mean of the two middle values; 0 if there are
// none.
func Median(values []float64) float64 {
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

// quantile returns the value that a share q of all values does not exceed. It uses the
// nearest rank, so the result is always a measured time. It returns 0 if there are no
// values.
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

// Ratio returns a divided by b; 0 if b is 0.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return Rounded(a / b)
}

// Rounded keeps four significant digits, because more would be noise.
func Rounded(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// Milliseconds returns a duration as a number of milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Rate writes a rate for people.
func Rate(v float64) string {
	if v >= 10_000 {
		return strconv.FormatFloat(v/1000, 'f', 1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Times writes a ratio for people.
func Times(v float64) string { return "× " + term.Digits(v) }
