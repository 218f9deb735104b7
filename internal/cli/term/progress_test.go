package term

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestProgressIsALineNowAndThenWhereNobodySits(t *testing.T) {
	var errs bytes.Buffer
	s := &Style{}
	p := NewProgress(&errs, s, "x")
	p.shown, p.Every = time.Now().Add(-time.Hour), 0
	p.Say("never")
	p.Every = time.Minute
	p.Say("one")
	p.Say("too early")
	p.Done()
	if diff := cmp.Diff("one\n", errs.String()); diff != "" {
		t.Error(diff)
	}
	errs.Reset()
	s.Terminal = true
	p = NewProgress(&errs, s, "x")
	p.Say("a long line")
	p.shown = time.Time{}
	p.Say("short")
	p.Done()
	if diff := cmp.Diff("\ra long line\rshort      \r           \r", errs.String()); diff != "" {
		t.Error(diff)
	}
}

// TestProgressHasABarOnATerminal shows work with a known and an unknown total,
// on a terminal and in a log.
func TestProgressHasABarOnATerminal(t *testing.T) {
	for _, tt := range []struct {
		terminal    bool
		unit        string
		done, total int64
		want        string
	}{
		{true, "", 50, 100, "\rx [============            ] 50 %, about 2.8 h left"},
		{true, ByBytes, 50e9, 200e9, "\rx [======                  ] 25 %, 5.00 MB/s, about 8.3 h left"},
		{true, ByBytes, 50e9, 0, "\rx 50.0 GB, 5.00 MB/s"},
		{false, "rows", 305_000, 200_000, "x 100 %, 30 rows/s\n"},
		{false, "", 7, 0, "x 7\n"},
	} {
		var out bytes.Buffer
		p := NewProgress(&out, &Style{Terminal: tt.terminal}, "x")
		p.Unit = tt.unit
		p.began, p.shown, p.total = time.Now().Add(-10_000*time.Second), time.Now().Add(-time.Hour), tt.total
		p.Step(tt.done, tt.total)
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("%d of %d: %s", tt.done, tt.total, diff)
		}
	}
}

func TestTimeLeft(t *testing.T) {
	for _, tt := range []struct {
		elapsed     time.Duration
		done, total int64
		want        string
	}{
		{10 * time.Second, 10, 20, ", about 10 s left"}, {10 * time.Second, 1, 60, ", about 10 min left"}, {time.Hour, 1, 4, ", about 3.0 h left"},
		{time.Millisecond, 1, 2, ""}, {time.Hour, 0, 2, ""}, {time.Hour, 2, 2, ""},
	} {
		if got := TimeLeft(time.Now().Add(-tt.elapsed), tt.done, tt.total); got != tt.want {
			t.Errorf("%v, %d of %d: %q", tt.elapsed, tt.done, tt.total, got)
		}
	}
}
