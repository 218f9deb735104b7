package measure

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/clitest"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

func TestQuantileIsATimeThatWasMeasured(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, tt := range []struct {
		sorted  []float64
		q, want float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0, 7}, {[]float64{7}, 0.99, 7}, {[]float64{1, 2}, 0.5, 1}, {[]float64{1, 2, 3}, 0.5, 2},
		{hundred, 0.5, 50}, {hundred, 0.95, 95}, {hundred, 0.99, 99}, {hundred, 0.991, 100}, {hundred, 1, 100}, {hundred, 0, 1},
	} {
		if got := quantile(tt.sorted, tt.q); got != tt.want {
			t.Errorf("%v of %d values: %v, want %v", tt.q, len(tt.sorted), got, tt.want)
		}
	}
}

func TestMedian(t *testing.T) {
	given := []float64{9, 1, 5}
	if got := Median(given); got != 5 || given[0] != 9 {
		t.Errorf("%v, and the values are now %v", got, given)
	}
	if got := Median([]float64{4, 1, 2, 9}); got != 3 {
		t.Error(got)
	}
	if got := Median(nil); got != 0 {
		t.Error(got)
	}
}

func TestFigures(t *testing.T) {
	got := FiguresOf([]float64{4, 1, 3, 2}, 2*time.Second)
	if want := (Figures{PerSecond: 2, P50: 2, P95: 4, P99: 4}); got != want {
		t.Errorf("%+v", got)
	}
	if got := FiguresOf(nil, 0); got != (Figures{}) { // and no NaN, which JSON cannot express
		t.Errorf("%+v", got)
	}
	if got := Medians([]Figures{{1, 10, 0, 5}, {3, 30, 0, 1}, {2, 20, 0, 3}}); got != (Figures{2, 20, 0, 3}) {
		t.Errorf("%+v", got)
	}
	if Ratio(3, 0) != 0 || Ratio(1, 3) != 0.3333 || Rounded(123456) != 123500 {
		t.Error(Ratio(3, 0), Ratio(1, 3), Rounded(123456))
	}
}

// TestMaterialIsLikeRealText: the material is the same each time, and compresses like text and programs, neither
// like noise nor like one repeated line.
func TestMaterialIsLikeRealText(t *testing.T) {
	text := NewMaterial(1).passage(1 << 20)
	if len(text) != 1<<20 || text != NewMaterial(1).passage(1<<20) || text == NewMaterial(2).passage(1<<20) {
		t.Errorf("%d bytes, which must follow from the seed alone", len(text))
	}
	if smaller := float64(len(text)) / float64(len(deflated(t, []byte(text)))); smaller < 2.5 || smaller > 4.5 {
		t.Errorf("it deflates to a part in %.2f; English and Go deflate to one in 2.5 to 4.5", smaller)
	}
}

func deflated(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestStatesHaveTheirSizeAndAreNeverAlike(t *testing.T) {
	for _, size := range []int64{LeastState, 100, 2 << 10, 64 << 10} {
		source := NewStates(1, size).Reader(3)
		seen := map[string]bool{}
		for range 200 {
			state := string(source.Next())
			if int64(len(state)) != size || seen[state] || !json.Valid([]byte(state)) {
				t.Fatalf("%d bytes, want %d; seen before: %v; %.100s", len(state), size, seen[state], state)
			}
			seen[state] = true
		}
	}
}

// TestRawLogSharesFlushes: everything that was written is in the log, both for a log that grows and for one of a
// fixed size.
func TestRawLogSharesFlushes(t *testing.T) {
	for room, want := range map[int64]int{0: 2000, 5000: 5000} {
		log, err := openRawLog(filepath.Join(t.TempDir(), "log"), room, 5000)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		for range 20 {
			go func() { done <- log.write(bytes.Repeat([]byte("x"), 100)) }()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		text := readFile(t, log.file.Name())
		if len(text) != want || strings.Count(text, "x") != 2000 {
			t.Errorf("room %d: %d bytes, of which %d were written", room, len(text), strings.Count(text, "x"))
		}
		log.remove()
		if _, err := os.Stat(log.file.Name()); err == nil {
			t.Error("the log is still there")
		}
	}
}

func TestARawLogIsOverwrittenFromItsStart(t *testing.T) {
	log, err := openRawLog(filepath.Join(t.TempDir(), "log"), 250, 250)
	if err != nil {
		t.Fatal(err)
	}
	defer log.remove()
	for _, b := range []string{"a", "b", "c"} {
		if err := log.write([]byte(strings.Repeat(b, 100))); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, log.file.Name()); got != strings.Repeat("c", 100)+strings.Repeat("b", 100)+strings.Repeat("\x00", 50) {
		t.Errorf("%q", got)
	}
}

func TestALoadEndsWithItsFirstError(t *testing.T) {
	broken := errors.New("broken")
	calls := 0
	_, err := Load{Clients: 1, During: time.Hour}.Run(t.Context(), func(int) (Task, error) {
		return timed(func(context.Context) error {
			if calls++; calls > 10 {
				return broken
			}
			return nil
		}), nil
	})
	if !errors.Is(err, broken) || calls != 11 {
		t.Errorf("%v after %d calls", err, calls)
	}
	f, err := Load{Clients: 3, During: time.Nanosecond}.Run(t.Context(), func(int) (Task, error) {
		return func(context.Context) (time.Duration, error) { return time.Millisecond, nil }, nil
	})
	if err != nil || f.P50 != 1 || f.PerSecond == 0 { // even without time each is measured once
		t.Errorf("%+v, %v", f, err)
	}
}

// TestBars compares a drawing with one that a person has checked.
func TestBars(t *testing.T) {
	var b bytes.Buffer
	bars := &Bars{Title: "bars"}
	bars.group("one", Bar{"most", 200, "200"}, Bar{"half of it", 100, "100"}, Bar{"very little", 0.1, "0.1"}, Bar{"nothing", 0, "0"})
	bars.Join("two", Bar{"größer", 3, "3"})
	bars.Join("two", Bar{"x", 1.5, "1.5"})
	bars.Write(&b, &term.Style{})
	if diff := cmp.Diff(readFile(t, filepath.Join("testdata", "bars.txt")), b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestDiskForASave: a short measurement must not be refused on a disk that has enough room. The minimum values were
// measured.
func TestDiskForASave(t *testing.T) {
	for _, c := range []struct {
		clients     int
		size        int64
		least, most int64 // in MiB
	}{
		{1, 2 << 10, 119, 200},
		{64, 64 << 10, 670, 800},
	} {
		if got := diskFor(c.clients, c.size) >> 20; got < c.least || got > c.most {
			t.Errorf("%d clients, %d bytes: %d MiB, want %d to %d", c.clients, c.size, got, c.least, c.most)
		}
	}
}

// TestARawLogBeginsAnew: a log that grows stays within its size.
func TestARawLogBeginsAnew(t *testing.T) {
	log, err := openRawLog(filepath.Join(t.TempDir(), "log"), 0, 250)
	if err != nil {
		t.Fatal(err)
	}
	defer log.remove()
	for _, b := range []string{"a", "b", "c"} {
		if err := log.write([]byte(strings.Repeat(b, 100))); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, log.file.Name()); got != strings.Repeat("c", 100) {
		t.Errorf("%q", got)
	}
}

// TestAFullDiskIsNamed: a measurement that needs more room than there is does not begin.
func TestAFullDiskIsNamed(t *testing.T) {
	if err := roomFor(t.TempDir(), 1<<62/2); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("a measurement larger than any disk: %v", err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBenchmarksDescribesEveryField compares the document with the report.
func TestBenchmarksDescribesEveryField(t *testing.T) {
	clitest.Describes(t, filepath.Join("..", "..", "..", "docs", "BENCHMARKS.md"), "## bench save", SaveReport{})
}

// timed returns a task that needs no preparation.
func timed(do func(context.Context) error) Task {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := do(ctx)
		return time.Since(began), err
	}
}
