package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/figures"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/systems"
)

// report is the output of --json, and the source of the text.
type report struct {
	Time    time.Time         `json:"time"`
	CPU     string            `json:"cpu"`
	CPUs    int               `json:"cpus"`
	Disk    string            `json:"disk"`
	Before  string            `json:"load_before"` // of the machine, from /proc/loadavg
	After   string            `json:"load_after"`
	Rounds  int               `json:"rounds"` // that were begun
	Cut     bool              `json:"cut"`    // the time ran out before all rounds were done
	Seconds float64           `json:"seconds_each"`
	Kept    int               `json:"states_kept"` // of a history, to measure the disk space
	Systems []*systemReport   `json:"systems"`
	Results []*result         `json:"results"`
	Storage []*storage        `json:"storage"`
	Bars    []figures.Verdict `json:"bars"`

	samples map[measured]figures.Series
	bytes   map[measured]float64
	seen    map[string]flushes
	builds  map[string]string
}

// measured is a cell of a system. For bytes on disk, Clients is 0.
type measured struct {
	system string
	cell   figures.Cell
}

type systemReport struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Version string   `json:"version,omitempty"`
	Without string   `json:"without,omitempty"` // why it is left out
	Flushes *flushes `json:"flushes,omitempty"`
}

// result is one system in one cell: medians over the rounds.
type result struct {
	System string `json:"system"`
	figures.Cell
	Rate  float64    `json:"saves_per_second"`
	P50   float64    `json:"p50_ms"`
	P99   float64    `json:"p99_ms"`
	CPU   float64    `json:"cpu_ms_per_save"` // of the system and its client
	Ratio *float64   `json:"ours_by_it,omitempty"`
	Rates []*float64 `json:"by_round"` // saves per second; null if it was not measured
}

// storage is the disk space that one save of a history takes.
type storage struct {
	System string   `json:"system"`
	Size   int      `json:"size"`
	Step   int      `json:"step"`
	Bytes  float64  `json:"bytes_per_save"`
	Ratio  *float64 `json:"it_by_ours,omitempty"`
}

func newReport(o *options) *report {
	return &report{
		Time: time.Now().UTC().Truncate(time.Second), CPU: cpuName(), CPUs: runtime.NumCPU(),
		Before: machineLoad(), Seconds: o.each.Seconds(), Kept: o.kept,
		samples: map[measured]figures.Series{}, bytes: map[measured]float64{},
		seen: map[string]flushes{}, builds: map[string]string{},
	}
}

// machineLoad returns the load of the machine, including other programs.
func machineLoad() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.TrimSpace(string(text))
}

func cpuName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(text), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Trim(line, "\t :")
}

func (r *report) version(system, version string) { r.builds[system] = version }

func (r *report) flushes(system string, f flushes) { r.seen[system] = f }

// add records a sample that a system gave in a round.
func (r *report) add(round int, c figures.Cell, system string, s figures.Sample) {
	key := measured{system, c}
	series := r.samples[key]
	for len(series) <= round {
		series = append(series, nil)
	}
	series[round] = &s
	r.samples[key] = series
	r.Rounds = max(r.Rounds, round+1)
}

// stored records the bytes that one save of a history took.
func (r *report) stored(c figures.Cell, system string, bytes float64) {
	c.Clients = 0
	r.bytes[measured{system, c}] = bytes
}

// finish computes the medians and judges the bars.
func (r *report) finish(peers []*peer) {
	r.After = machineLoad()
	for _, p := range peers {
		s := &systemReport{Name: p.Name(), Title: p.Title(), Version: r.builds[p.Name()], Without: p.out}
		if seen, known := r.seen[p.Name()]; known {
			s.Flushes = &seen
		}
		r.Systems = append(r.Systems, s)
	}
	for _, p := range phases() {
		for _, s := range r.Systems {
			for _, c := range p.cells {
				r.result(s.Name, c)
			}
			r.storage(s.Name, p.cells[0])
		}
	}
	r.Bars = figures.Judge(figures.Bars(), r.ratio)
}

func (r *report) result(system string, c figures.Cell) {
	series := r.samples[measured{system, c}]
	m, ok := series.Median()
	if !ok {
		return
	}
	one := &result{System: system, Cell: c, Rate: m.Rate, P50: m.P50, P99: m.P99, CPU: m.CPU}
	if ratio, ok := r.ratio(figures.Bar{Peer: system, Cell: c}); ok && system != systems.Ours {
		one.Ratio = &ratio
	}
	for _, sample := range series {
		if sample == nil {
			one.Rates = append(one.Rates, nil)
		} else {
			one.Rates = append(one.Rates, &sample.Rate)
		}
	}
	r.Results = append(r.Results, one)
}

func (r *report) storage(system string, c figures.Cell) {
	c.Clients = 0
	bytes, known := r.bytes[measured{system, c}]
	if !known {
		return
	}
	one := &storage{System: system, Size: c.Size, Step: c.Step, Bytes: bytes}
	if ratio, ok := r.ratio(figures.Bar{Peer: system, Cell: c, Bytes: true}); ok && system != systems.Ours {
		one.Ratio = &ratio
	}
	r.Storage = append(r.Storage, one)
}

// ratio returns the measured ratio that a bar is compared with, and false if there is none.
func (r *report) ratio(b figures.Bar) (float64, bool) {
	ours, theirs := measured{systems.Ours, b.Cell}, measured{b.Peer, b.Cell}
	if !b.Bytes {
		return figures.Ratio(r.samples[ours], r.samples[theirs])
	}
	if r.bytes[ours] == 0 || r.bytes[theirs] == 0 {
		return 0, false
	}
	return r.bytes[theirs] / r.bytes[ours], true
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// readReport reads a saved report.
func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(text, r); err != nil || len(r.Systems) == 0 {
		return nil, fmt.Errorf("%s is no saved report: %v", path, err)
	}
	return r, nil
}
