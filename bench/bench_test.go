package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/figures"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/systems"
)

func TestFlushesAreReadFromTheSummaryOfStrace(t *testing.T) {
	const summary = `% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.21    0.012345         122       101           fdatasync
  0.79    0.000098          49         2         1 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.012443         120       103         1 total
`
	if n, err := countCalls(summary); err != nil || n != 103 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := countCalls(""); err != nil || n != 0 {
		t.Errorf("of nothing: %d, %v", n, err)
	}
	if _, err := countCalls("99 0.01 1 many 0 fsync\n"); err == nil {
		t.Error("a count that is no number was read")
	}
}

func TestEachBeginsOnce(t *testing.T) {
	list := []string{"a", "b", "c"}
	first := map[string]int{}
	for by := range 6 {
		got := turned(list, by)
		first[got[0]]++
		if slices.Sort(got); !slices.Equal(got, list) {
			t.Fatalf("%v", got)
		}
	}
	if first["a"] != 2 || first["b"] != 2 || first["c"] != 2 || turned([]int(nil), 4) != nil {
		t.Errorf("%v", first)
	}
}

// TestEveryBarIsMeasured: every target belongs to work that is done. Otherwise
// it would always be "not measured".
func TestEveryBarIsMeasured(t *testing.T) {
	names := map[string]bool{}
	for _, s := range systems.All() {
		names[s.Name()] = true
	}
	for _, b := range figures.Bars() {
		found := false
		for _, p := range phases() {
			for _, c := range p.cells {
				same := c == b.Cell || b.Bytes && p.history() && c.Size == b.Cell.Size && c.Step == b.Cell.Step
				found = found || same && p.has(b.Peer) && names[b.Peer]
			}
		}
		if !found {
			t.Errorf("nothing measures %+v", b)
		}
	}
}

func example() *report {
	r := newReport(&options{each: time.Second, kept: 10})
	small := figures.Cell{Size: figures.Small, Clients: 1}
	huge := figures.Cell{Size: figures.Huge, Step: figures.HugeStep, Clients: 16}
	for round, ours := range []float64{2000, 1000, 3000} {
		r.add(round, small, "ours", figures.Sample{Rate: ours, P50: 0.5, P99: 2, CPU: 0.25})
		r.add(round, small, "redis", figures.Sample{Rate: ours / 2, P50: 1, P99: 4})
		if round != 1 {
			r.add(round, huge, "ours", figures.Sample{Rate: 800})
			r.add(round, huge, "postgres", figures.Sample{Rate: 100})
		}
	}
	r.stored(huge, "ours", 2048)
	r.stored(huge, "postgres", 204800)
	r.version("ours", "v1")
	r.flushes("ours", flushes{Checked: true, Saves: 101, Flushes: 102})
	r.flushes("redis", flushes{Why: "strace may not"})
	var peers []*peer
	for _, s := range systems.All() {
		p := &peer{System: s}
		if s.Name() == "etcd" {
			p.out = "it is not installed"
		}
		peers = append(peers, p)
	}
	r.finish(peers)
	return r
}

func TestReportForPeople(t *testing.T) {
	var b bytes.Buffer
	example().write(&b)
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"Medians of 3 rounds of 1s each",
		"ours ckptsidecar serve, over its Unix socket v1 102 for 101 saves",
		"SET - not checked",
		"without etcd: it is not installed",
		"ours 2000 0.50 2.0 0.25",
		"redis 1000 1.00 4.0 0.00 2.00",
		"postgres - - - - - 100 0.00 0.0 0.00 8.00 200.0 100",
		"redis 2 KiB, 1 client 0.9 2.00 PASS",
		"postgres 512 KiB history, 16 clients 15 8.00 miss",
		"postgres 512 KiB history, times fewer bytes on disk 100 100.00 PASS",
		"langgraph 2 KiB, 1 client 0.9 - not measured",
		"2 of 3 bars that were measured are met; 37 were not measured.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, b.String())
		}
	}
}

func TestReportForPrograms(t *testing.T) {
	var b bytes.Buffer
	if err := example().writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Rounds  int
		Systems []struct{ Name, Without string }
		Results []struct {
			System        string
			Size, Clients int
			Saves         float64    `json:"saves_per_second"`
			Ratio         *float64   `json:"ours_by_it"`
			Rates         []*float64 `json:"by_round"`
		}
		Storage []struct {
			System string
			Bytes  float64  `json:"bytes_per_save"`
			Ratio  *float64 `json:"it_by_ours"`
		}
		Bars []struct {
			Peer string
			Pass bool
		}
	}
	if err := json.Unmarshal(b.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Rounds != 3 || len(r.Systems) != 8 || len(r.Results) != 4 || len(r.Storage) != 2 || len(r.Bars) != len(figures.Bars()) {
		t.Fatalf("%+v", r)
	}
	if one := r.Results[1]; one.System != "redis" || one.Size != 2048 || one.Clients != 1 || one.Saves != 1000 || *one.Ratio != 2 {
		t.Errorf("%+v", one)
	}
	if rates := r.Results[2].Rates; len(rates) != 3 || *rates[0] != 800 || rates[1] != nil {
		t.Errorf("by round: %v", rates)
	}
	if r.Results[0].Ratio != nil || r.Storage[0].Ratio != nil || *r.Storage[1].Ratio != 100 {
		t.Errorf("%+v", r)
	}
}

func TestSavedReportsAreShownAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	was := example()
	var saved bytes.Buffer
	if err := was.writeJSON(&saved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, saved.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	is, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]func(*report, io.Writer){"text": (*report).write, "markdown": (*report).writeMarkdown} {
		var before, after bytes.Buffer
		form(was, &before)
		form(is, &after)
		if before.String() != after.String() || after.Len() == 0 {
			t.Errorf("the %s is another:\n%s\n%s", name, &before, &after)
		}
		if name == "markdown" && !strings.Contains(after.String(), "| redis | 1000 (1.00), 0.00, **2.00** | - | - |") {
			t.Errorf("%s", &after)
		}
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readReport(path); err == nil {
		t.Error("an empty object was taken for a report")
	}
}

func TestFoldersOfKilledRunsAreSwept(t *testing.T) {
	if err := host.Check(); err != nil {
		t.Skip(err)
	}
	parent := t.TempDir()
	for _, name := range []string{"killed", "begun"} {
		if err := os.Mkdir(filepath.Join(parent, scratchPrefix+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(parent, scratchPrefix+"killed", scratchLock), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	one, release, err := makeScratch(parent)
	if err != nil {
		t.Fatal(err)
	}
	two, releaseTwo, err := makeScratch(parent)
	if err != nil {
		t.Fatal(err)
	}
	releaseTwo()
	left, _ := filepath.Glob(filepath.Join(parent, "*"))
	if want := []string{one, filepath.Join(parent, scratchPrefix+"begun")}; len(left) != 2 || !slices.Contains(left, want[0]) || !slices.Contains(left, want[1]) {
		t.Errorf("left are %v, not %v; the second was %s", left, want, two)
	}
	release()
	if _, err := os.Stat(one); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", one)
	}
}

func TestOptions(t *testing.T) {
	quick, err := parse([]string{"-quick", "-rounds", "7", "-only", "redis, file"})
	if err != nil || quick.rounds != 7 || quick.each != 450*time.Millisecond || !quick.wants("file") || quick.wants("etcd") {
		t.Errorf("%+v, %v", quick, err)
	}
	full, err := parse(nil)
	if err != nil || full.rounds != 5 || full.kept != 1000 || !full.wants("etcd") {
		t.Errorf("%+v, %v", full, err)
	}
	for _, wrong := range [][]string{{"-time", "1ms"}, {"-rounds", "-1"}, {"now"}} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}
