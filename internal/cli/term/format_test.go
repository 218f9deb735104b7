package term

import (
	"testing"
	"time"
)

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 2048: "2.05 kB", 99_949: "99.9 kB", 999_499: "999 kB", 999_600: "1.00 MB",
		12_345_678: "12.3 MB", 5_000_000_000: "5.00 GB", 7e15: "7000 TB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "just now", 5 * time.Second: "5 s ago", 5 * time.Minute: "5 min ago", 5 * time.Hour: "5 h ago", 50 * time.Hour: "2 days ago", -time.Hour: "just now",
	} {
		if got := Ago(now, now.Add(-d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := Ago(now, time.Time{}); got != "never" {
		t.Error(got)
	}
}
