package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type benchCmd struct {
	Save  benchSaveCmd  `cmd:"" help:"Durable saves a second over the socket, beside raw append and fdatasync on the same disk."`
	Drift benchDriftCmd `cmd:"" help:"How often the drift detectors fire on recorded runs whose outcome is known."`
}

type benchSaveCmd struct {
	Clients []int    `default:"1,16,64" help:"How many clients save at once. Default: ${default}."`
	Sizes   []string `default:"2KiB,64KiB" help:"How large the states are. Default: ${default}."`
	Rounds  int      `default:"3" help:"How often each is measured, in turns; the median counts. Default: ${default}."`
	Time    string   `default:"1s" help:"How long one measurement takes. Default: ${default}."`
	Dir     string   `default:"." help:"A folder on the disk to measure. Default: this one." placeholder:"DIR"`
	Seed    uint64   `default:"1" help:"Of the bytes that are saved. Default: ${default}."`
}

// benchReport is the answer of --json.
type benchReport struct {
	Dir      string      `json:"dir"`
	Platform string      `json:"platform"`
	CPUs     int         `json:"cpus"`
	Rounds   int         `json:"rounds"`
	Seconds  float64     `json:"seconds_each"`
	Cells    []benchCell `json:"cells"`
}

// benchCell is one combination of clients and size: medians over the rounds.
type benchCell struct {
	Clients  int     `json:"clients"`
	Size     int64   `json:"size"`
	Saves    float64 `json:"saves_per_second"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Raw      float64 `json:"raw_appends_per_second"`
	RawP50   float64 `json:"raw_p50_ms"`
	Ratio    float64 `json:"ratio"` // of saves to raw appends, within one round
	measured []measured
}

type measured struct{ saves, raw sample }

func (c *benchSaveCmd) Run(ctx context.Context, a *app) error {
	cells, each, err := c.plan()
	if err != nil {
		return err
	}
	b, err := a.openBench(ctx, c.Dir, each, c.Seed)
	if err != nil {
		return err
	}
	defer b.close()
	if err := c.measure(ctx, a, b, cells); err != nil {
		return err
	}
	report := benchReport{
		Dir: b.dir, Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Rounds: c.Rounds, Seconds: each.Seconds(), Cells: cells,
	}
	for i := range report.Cells {
		report.Cells[i].sum()
	}
	if a.cli.JSON {
		return writeJSON(a.stdout, report)
	}
	benchText(a, &report)
	return nil
}

// plan is every combination, in the order in which it is measured.
func (c *benchSaveCmd) plan() (cells []benchCell, each time.Duration, err error) {
	if each, err = time.ParseDuration(c.Time); err != nil || each < 10*time.Millisecond {
		return nil, 0, usagef("--time is %q: say for example 1s, at least 10ms", c.Time)
	}
	if c.Rounds < 1 || len(c.Clients) == 0 || len(c.Sizes) == 0 {
		return nil, 0, usagef("there is nothing to measure: --rounds, --clients and --sizes must each name something")
	}
	for _, text := range c.Sizes {
		size, err := daemon.ParseSize(text)
		if err != nil || size < 1 || size > 64<<20 {
			return nil, 0, usagef("--sizes has %q: say sizes like 2KiB, at most 64MiB", text)
		}
		for _, clients := range c.Clients {
			if clients < 1 || clients > 512 {
				return nil, 0, usagef("--clients has %d: it is between 1 and 512", clients)
			}
			cells = append(cells, benchCell{Clients: clients, Size: int64(size)})
		}
	}
	return cells, each, nil
}

// measure goes round all combinations, raw and saved in turns, so that a disk
// that is faster or slower for a while is so for both.
func (c *benchSaveCmd) measure(ctx context.Context, a *app, b *bench, cells []benchCell) error {
	p := a.progress("measuring")
	defer p.done()
	for round := range c.Rounds {
		for i := range cells {
			cell := &cells[i]
			p.say("round %d of %d: %s of %s", round+1, c.Rounds, count(cell.Clients, "client"), bytesText(cell.Size))
			var m measured
			var err error
			if m.raw, err = b.raw(ctx, cell.Clients, cell.Size); err != nil {
				return fmt.Errorf("appending to a file: %w", err)
			}
			if m.saves, err = b.save(ctx, cell.Clients, cell.Size); err != nil {
				return err
			}
			cell.measured = append(cell.measured, m)
		}
	}
	return nil
}

// sum takes the medians of the rounds.
func (c *benchCell) sum() {
	of := func(get func(measured) float64) float64 {
		var all []float64
		for _, m := range c.measured {
			all = append(all, get(m))
		}
		return median(all)
	}
	c.Saves = of(func(m measured) float64 { return m.saves.rate })
	c.P50 = of(func(m measured) float64 { return m.saves.p50 })
	c.P99 = of(func(m measured) float64 { return m.saves.p99 })
	c.Raw = of(func(m measured) float64 { return m.raw.rate })
	c.RawP50 = of(func(m measured) float64 { return m.raw.p50 })
	c.Ratio = of(func(m measured) float64 { return m.saves.rate / m.raw.rate })
}

func benchText(a *app, r *benchReport) {
	t := newTable(">CLIENTS", ">SIZE", ">SAVES/S", ">P50", ">P99", ">RAW/S", ">RAW P50", ">RATIO")
	for _, c := range r.Cells {
		t.add(fmt.Sprint(c.Clients), daemon.Size(c.Size).String(), fmt.Sprintf("%.0f", c.Saves), millis(c.P50), millis(c.P99),
			fmt.Sprintf("%.0f", c.Raw), millis(c.RawP50), fmt.Sprintf("%.2f", c.Ratio))
	}
	t.write(a.stdout, a.out)
	a.tell("\nEach save was acknowledged after it was safe on the disk. Raw is one log file that all clients append to,\n"+
		"each waiting for fdatasync, those that wait sharing one. Medians of %s of %gs, on %s with %d CPUs; the clients share them with the daemon.",
		count(r.Rounds, "round"), r.Seconds, r.Platform, r.CPUs)
}
