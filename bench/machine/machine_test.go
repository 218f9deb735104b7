package main

import (
	"bytes"
	"compress/zlib"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/clitest"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

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

// TestHistories: every state is JSON, and the states grow as they should.
func TestHistories(t *testing.T) {
	const saves, size = 400, 400 << 10
	for _, g := range growths {
		next := g.make(measure.NewMaterial(1), saves, size)
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

// countShrinks counts how often a size is less than half of the previous one.
func countShrinks(sizes []int) (n int) {
	for i := 1; i < len(sizes); i++ {
		if sizes[i] < sizes[i-1]/2 {
			n++
		}
	}
	return n
}

func TestASlidingConversationKeepsItsSize(t *testing.T) {
	c := newConversation(measure.NewMaterial(1))
	for i := range 100 {
		if state := c.slide(64 << 10); len(state) < 60<<10 || len(state) > 68<<10 || !json.Valid(state) {
			t.Fatalf("state %d has %d bytes", i, len(state))
		}
	}
}

// TestDatabaseBytesAreThoseOfSQLite compares our size with SQLite's own, while
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
		"INSERT INTO t VALUES (randomblob(50000))", // the log starts over
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
			continue // nothing was written yet
		}
		if got, err := databaseBytes(path); err != nil || got != want {
			t.Errorf("after %s: %d, want %d (%v)", statement, got, want, err)
		}
	}
	if _, err := databaseBytes(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there has a size")
	}
}

// TestAConversationIsLikeRealText: it compresses like English text and Go code.
func TestAConversationIsLikeRealText(t *testing.T) {
	var conversation []byte
	history := chatHistory(measure.NewMaterial(1), 100, 200<<10)
	for range 100 {
		conversation = history()
	}
	if smaller := float64(len(conversation)) / float64(deflatedHistory(t, conversation)); smaller < 2.5 || smaller > 4.5 {
		t.Errorf("a conversation deflates to a part in %.2f", smaller)
	}
}

// deflatedHistory returns the size of a text after zlib.
func deflatedHistory(t *testing.T, text []byte) int {
	t.Helper()
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, err := w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Len()
}

// TestCharts compares drawings with ones that a person has checked.
func TestCharts(t *testing.T) {
	var b bytes.Buffer
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
	want, err := os.ReadFile(filepath.Join("testdata", "golden", "charts.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
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

// TestBenchmarksDescribesEveryField compares the document with the reports.
func TestBenchmarksDescribesEveryField(t *testing.T) {
	for name, report := range map[string]any{"restore": restoreReport{}, "history": historiesReport{}, "scale": scaleReport{}, "files": filesReport{}} {
		clitest.Describes(t, filepath.Join("..", "..", "docs", "BENCHMARKS.md"), "## "+name, report)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "BENCHMARKS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range probes {
		if !strings.Contains(string(doc), "`"+p.name+"`") {
			t.Errorf("the operation %s is not described", p.name)
		}
	}
}

// TestMistakesAreNamed: a wrong option is a usage error, and nothing is
// measured.
func TestMistakesAreNamed(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"restore", "--sizes", "1"}, "from 64 to 64MiB"},
		{[]string{"restore", "--saves", "0"}, "--saves is 0"},
		{[]string{"history", "--histories", "chat,tale"}, `there are chat, compacting, edited`},
		{[]string{"history", "--saves", "5"}, "--saves is 5"},
		{[]string{"history", "--size", "1GiB"}, "--size has"},
		{[]string{"history", "--restores", "0"}, "--restores is 0"},
		{[]string{"files", "--files", "5"}, "--files is 5"},
		{[]string{"files", "--rounds", "0"}, "--rounds must be between 1 and 1000; got 0"},
		{[]string{"scale", "--rows", "lots"}, `--rows has "lots"`},
		{[]string{"scale", "--rows", "10k,1k"}, "--rows has 1k after 10k"},
		{[]string{"scale", "--clients", "1000"}, "--clients must be between 1 and 512; got 1000"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), tt.args, strings.NewReader(""), &out, &errs); code != cli.ExitUsage || !strings.Contains(errs.String(), tt.want) || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %s%s", tt.args, code, &out, &errs)
		}
	}
}
