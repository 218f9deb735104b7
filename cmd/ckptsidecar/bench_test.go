package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

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
	if got := median(given); got != 5 || given[0] != 9 {
		t.Errorf("%v, and the values are now %v", got, given)
	}
	if got := median([]float64{4, 1, 2, 9}); got != 3 {
		t.Error(got)
	}
	if got := median(nil); got != 0 {
		t.Error(got)
	}
}

func TestFigures(t *testing.T) {
	got := figuresOf([]float64{4, 1, 3, 2}, 2*time.Second)
	if want := (figures{PerSecond: 2, P50: 2, P95: 4, P99: 4}); got != want {
		t.Errorf("%+v", got)
	}
	if got := figuresOf(nil, 0); got != (figures{}) { // and no NaN, which JSON cannot say
		t.Errorf("%+v", got)
	}
	if got := medians([]figures{{1, 10, 0, 5}, {3, 30, 0, 1}, {2, 20, 0, 3}}); got != (figures{2, 20, 0, 3}) {
		t.Errorf("%+v", got)
	}
	if ratio(3, 0) != 0 || ratio(1, 3) != 0.3333 || rounded(123456) != 123500 {
		t.Error(ratio(3, 0), ratio(1, 3), rounded(123456))
	}
}

// TestPlots compares drawings with those that were looked at.
func TestPlots(t *testing.T) {
	var b bytes.Buffer
	bars := &barPlot{title: "bars"}
	bars.group("one", bar{"most", 200, "200"}, bar{"half of it", 100, "100"}, bar{"very little", 0.1, "0.1"}, bar{"nothing", 0, "0"})
	bars.join("two", bar{"größer", 3, "3"})
	bars.join("two", bar{"x", 1.5, "1.5"})
	bars.write(&b, &term.Style{})

	rising, falling, wave := make([]float64, 200), make([]float64, 200), make([]float64, 7)
	for i := range rising {
		rising[i], falling[i] = float64(i), 150-float64(i)/2
	}
	for i := range wave {
		wave[i] = 0.5 + 0.4*math.Sin(float64(i))
	}
	crossing := &chart{title: "two lines", first: "save 1", last: "200", label: term.Millis}
	crossing.add("rising", rising)
	crossing.add("falling", falling)
	few := &chart{title: "fewer values than columns", first: "left", last: "right", height: 5, label: term.Digits}
	few.add("alone", wave)
	none := &chart{title: "nothing", first: "0", last: "0", height: 3, label: term.Digits}
	for _, c := range []*chart{crossing, few, none} {
		b.WriteByte('\n')
		c.write(&b, &term.Style{})
	}
	golden(t, "plot.txt", b.String())
	for line := range strings.Lines(b.String()) {
		if term.Visible(line) > 80 || strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("too wide, or with spaces at its end: %q", line)
		}
	}
}

func TestAScaleEndsAtARoundNumber(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.07: 0.08, 1: 1, 1.1: 1.5, 27: 30, 5556: 6000, 81: 100, math.NaN(): 1} {
		if got := niceTop(v); math.Abs(got-want) > want/1e9 {
			t.Errorf("%v: %v, want %v", v, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	for text, want := range map[string]int64{"100": 100, "10k": 10_000, "1M": 1_000_000, " 3m ": 3_000_000} {
		if got, err := parseCount(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "k", "1.5m", "-1", "1g", "9999999999999999"} {
		if got, err := parseCount(bad); err == nil {
			t.Errorf("%q was read as %d", bad, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1_000_000: "1,000,000"} {
		if got := countText(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// TestMaterialIsLikeRealText: it is the same each time, and compresses as text
// and programs do, neither like noise nor like one line over and over.
func TestMaterialIsLikeRealText(t *testing.T) {
	text := newMaterial(1).passage(1 << 20)
	if len(text) != 1<<20 || text != newMaterial(1).passage(1<<20) || text == newMaterial(2).passage(1<<20) {
		t.Errorf("%d bytes, which must follow from the seed alone", len(text))
	}
	if smaller := float64(len(text)) / float64(len(deflated(t, []byte(text)))); smaller < 2.5 || smaller > 4.5 {
		t.Errorf("it deflates to a part in %.2f; English and Go deflate to one in 2.5 to 4.5", smaller)
	}
	var conversation []byte
	history := chatHistory(newMaterial(1), 100, 200<<10)
	for range 100 {
		conversation = history()
	}
	if smaller := float64(len(conversation)) / float64(len(deflated(t, conversation))); smaller < 2.5 || smaller > 4.5 {
		t.Errorf("a conversation deflates to a part in %.2f", smaller)
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
	for _, size := range []int64{leastState, 100, 2 << 10, 64 << 10} {
		source := newStates(1, size).reader(3)
		seen := map[string]bool{}
		for range 200 {
			state := string(source.next())
			if int64(len(state)) != size || seen[state] || !json.Valid([]byte(state)) {
				t.Fatalf("%d bytes, want %d; seen before: %v; %.100s", len(state), size, seen[state], state)
			}
			seen[state] = true
		}
	}
}

// TestHistories: every state is JSON, and they grow as they should.
func TestHistories(t *testing.T) {
	const saves, size = 400, 400 << 10
	for _, g := range growths {
		next := g.make(newMaterial(1), saves, size)
		var sizes []int
		before := []byte(nil)
		for i := range saves {
			state := next()
			if !json.Valid(state) || bytes.Equal(state, before) {
				t.Fatalf("%s: state %d is no JSON, or the one before: %.100s", g.name, i, state)
			}
			sizes, before = append(sizes, len(state)), bytes.Clone(state)
		}
		last, most := sizes[saves-1], slices.Max(sizes)
		switch g.name {
		case "chat":
			if !slices.IsSorted(sizes) || last < size*8/10 || last > size*12/10 {
				t.Errorf("chat ends with %d bytes of %d, only growing: %v", last, size, slices.IsSorted(sizes))
			}
		default:
			if most > size*6/10 || most < size*3/10 {
				t.Errorf("%s has states of up to %d bytes", g.name, most)
			}
		}
		if shrinks := countShrinks(sizes); g.name == "compacting" && shrinks < 2 {
			t.Errorf("compacting shrank %d times", shrinks)
		}
	}
}

// countShrinks counts how often a size was less than half of the one before.
func countShrinks(sizes []int) (n int) {
	for i := 1; i < len(sizes); i++ {
		if sizes[i] < sizes[i-1]/2 {
			n++
		}
	}
	return n
}

func TestASlidingConversationKeepsItsSize(t *testing.T) {
	c := newConversation(newMaterial(1))
	for i := range 100 {
		if state := c.slide(64 << 10); len(state) < 60<<10 || len(state) > 68<<10 || !json.Valid(state) {
			t.Fatalf("state %d has %d bytes", i, len(state))
		}
	}
}

// TestRawLogSharesFlushes: all that was written is there, in a log that grows
// and in one that has its size.
func TestRawLogSharesFlushes(t *testing.T) {
	for room, want := range map[int64]int{0: 2000, 5000: 5000} {
		log, err := openRawLog(filepath.Join(t.TempDir(), "log"), room)
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
		text := read(t, log.file.Name())
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
	log, err := openRawLog(filepath.Join(t.TempDir(), "log"), 250)
	if err != nil {
		t.Fatal(err)
	}
	defer log.remove()
	for _, b := range []string{"a", "b", "c"} {
		if err := log.write([]byte(strings.Repeat(b, 100))); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, log.file.Name()); got != strings.Repeat("c", 100)+strings.Repeat("b", 100)+strings.Repeat("\x00", 50) {
		t.Errorf("%q", got)
	}
}

func TestALoadEndsWithItsFirstError(t *testing.T) {
	broken := errors.New("broken")
	calls := 0
	_, err := load{clients: 1, during: time.Hour}.run(t.Context(), func(int) (task, error) {
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
	f, err := load{clients: 3, during: time.Nanosecond}.run(t.Context(), func(int) (task, error) {
		return func(context.Context) (time.Duration, error) { return time.Millisecond, nil }, nil
	})
	if err != nil || f.P50 != 1 || f.PerSecond == 0 { // also without time each is measured once
		t.Errorf("%+v, %v", f, err)
	}
}

// TestDatabaseBytesAreThoseOfSQLite compares with what SQLite itself says, while
// commits wait in the log and after they were copied.
func TestDatabaseBytesAreThoseOfSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		"PRAGMA page_size = 8192", "PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL", "PRAGMA wal_autocheckpoint = 0",
		"CREATE TABLE t (x)",
		"INSERT INTO t WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100) SELECT randomblob(5000) FROM n",
		"PRAGMA wal_checkpoint(PASSIVE)",
		"INSERT INTO t VALUES (randomblob(50000))", // the log begins anew
		"DELETE FROM t WHERE rowid > 20", "PRAGMA incremental_vacuum(50)",
		"PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		var want int64
		if err := db.QueryRowContext(t.Context(), "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&want); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(statement, "PRAGMA page_size") || strings.HasPrefix(statement, "PRAGMA auto_vacuum") {
			continue // nothing is written yet
		}
		if got, err := databaseBytes(path); err != nil || got != want {
			t.Errorf("after %s: %d, want %d (%v)", statement, got, want, err)
		}
	}
	if _, err := databaseBytes(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there has a size")
	}
}

// TestTheDiskIsWhereTheDatabaseWouldBe: the nearest folder that is there.
func TestTheDiskIsWhereTheDatabaseWouldBe(t *testing.T) {
	home := t.TempDir()
	a := &app{process: process{env: func(name string) string {
		return map[string]string{"CKPTSIDECAR_DB": filepath.Join(home, "a", "b", "x.db")}[name]
	}}, cli: &grammar{}}
	if got, err := a.benchFolder(""); err != nil || got != home {
		t.Errorf("%q, %v; want %q", got, err, home)
	}
	if err := roomFor(home, 1<<62/2); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("a measurement larger than any disk: %v", err)
	}
}

// TestBenchmarksDescribesEveryField compares the document with the reports.
func TestBenchmarksDescribesEveryField(t *testing.T) {
	doc := read(t, filepath.Join("..", "..", "docs", "BENCHMARKS.md"))
	for name, report := range map[string]any{"save": benchSaveReport{}, "restore": benchRestoreReport{}, "history": benchHistoryReport{}, "scale": benchScaleReport{}} {
		_, section, found := strings.Cut(doc, "## bench "+name)
		if !found {
			t.Errorf("there is no section of bench %s", name)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, field := range jsonFields(reflect.TypeOf(report)) {
			if !regexp.MustCompile("`" + field + "`").MatchString(section + sectionOf(doc, "## What all have")) {
				t.Errorf("bench %s: %s is not described", name, field)
			}
		}
	}
	for _, p := range probes {
		if !strings.Contains(doc, "`"+p.name+"`") {
			t.Errorf("the operation %s is not described", p.name)
		}
	}
}

func sectionOf(doc, head string) string {
	_, section, _ := strings.Cut(doc, head)
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// jsonFields are the names of all fields of a type and of those inside it.
func jsonFields(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return jsonFields(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" {
			names = append(names, name)
		}
		if name != "" || f.Anonymous {
			names = append(names, jsonFields(f.Type)...)
		}
	}
	return names
}
