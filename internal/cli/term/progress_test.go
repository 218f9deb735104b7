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
	p.shown = time.Now().Add(-time.Hour)
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
