package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// Save is the command `bench save`.
type Save struct {
	Flags    `embed:""`
	Clients  []int         `default:"1,16,64" help:"How many clients save at once, each with its own agent and connection. Default: ${default}."`
	Sizes    []string      `default:"2KiB,64KiB" help:"How large the states are, each new; docs/BENCHMARKS.md has growing ones. Default: ${default}."`
	Runs     int           `default:"1" help:"How many runs each client saves into, chosen at random. Default: ${default}."`
	Rounds   int           `default:"3" help:"How many interleaved rounds to measure. The median counts. Default: ${default}."`
	Duration time.Duration `default:"1s" help:"How long each is measured in a round. Default: ${default}."`
	Memory   bool          `help:"Also measure the daemon's memory: idle, under many clients with large states, and with one very large state."`
	MemoryOf memoryFlags   `embed:"" prefix:"memory-"`
}

// SaveReport is the output of --json.
type SaveReport struct {
	Head
	Rounds   int           `json:"rounds"`
	Duration float64       `json:"duration_seconds"`
	Runs     int           `json:"runs"`
	Cells    []saveCell    `json:"cells"`
	Memory   *memoryReport `json:"memory,omitempty"`
}

// saveCell is one combination of clients and size: medians over the rounds. Ratios are
// computed within each round, and are medians too.
type saveCell struct {
	Clients   int     `json:"clients"`
	Size      int64   `json:"size"`
	Save      Figures `json:"save"`
	Cost      *Cost   `json:"cost"`
	Append    Figures `json:"append"`
	Overwrite Figures `json:"overwrite"`
	ToAppend  float64 `json:"save_to_append"`
	ToOver    float64 `json:"save_to_overwrite"`

	rounds []saveRound
}

type saveRound struct {
	save, add, over Figures
	cost            *Cost
}

// Run measures and reports.
func (c *Save) Run(ctx context.Context, a *Env) error {
	cells, need, err := c.plan()
	if err != nil {
		return err
	}
	memory, err := c.MemoryOf.plan()
	if err != nil {
		return err
	}
	if c.Memory {
		need = max(need, 1<<30)
	}
	return a.Measure(ctx, "save", c.Flags, need, func(b *Bench) error {
		report := SaveReport{Rounds: c.Rounds, Runs: c.Runs, Duration: c.Duration.Seconds(), Cells: cells}
		if err := c.measure(ctx, b, report.Cells); err != nil {
			return err
		}
		if c.Memory {
			report.Memory = memory
			if err := b.memory(ctx, c.MemoryOf, memory); err != nil {
				return err
			}
		}
		return b.Report(&report.Head, &report, func(a *Env) { report.text(a) })
	})
}

// plan returns every combination, in the order of measuring, and about how much disk
// space that needs.
func (c *Save) plan() (cells []saveCell, need int64, err error) {
	sizes, err := ParseSizes("--sizes", c.Sizes, 64, 64<<20)
	if err != nil {
		return nil, 0, err
	}
	if err := CheckClients(c.Clients); err != nil {
		return nil, 0, err
	}
	if err := CheckRounds(c.Rounds, c.Duration); err != nil {
		return nil, 0, err
	}
	if c.Runs < 1 || c.Runs > 100_000 {
		return nil, 0, cli.Usagef("--runs must be between 1 and 100000; got %d", c.Runs)
	}
	for _, size := range sizes {
		for _, clients := range c.Clients {
			if int64(clients)*size > 1<<30 {
				return nil, 0, cli.Usagef("%d clients with states of %s would need more than 1 GiB of memory: measure fewer "+
					"or smaller ones", clients, daemon.Size(size))
			}
			cells = append(cells, saveCell{Clients: clients, Size: size})
			need = max(need, diskFor(clients, size))
		}
	}
	return cells, need, nil
}

// diskFor returns about how many bytes on the disk one combination needs: its two logs,
// the newest checkpoints, and the database with its own log.
func diskFor(clients int, size int64) int64 {
	return appendedSize(clients, size) + overwrittenSize(clients, size) + 8*int64(clients)*size + 96<<20
}

// appendedSize is the size at which the growing log starts again: after 128 batches or
// more, so that truncating it takes only an insignificant part of the measurement.
func appendedSize(clients int, size int64) int64 { return max(64<<20, 128*int64(clients)*size) }

// overwrittenSize is the size of the overwritten log: as large as the daemon lets its own
// log grow, or as the largest batch needs.
func overwrittenSize(clients int, size int64) int64 { return max(32<<20, 2*int64(clients)*size) }

// measure measures all combinations. In each combination, it alternates between the two
// logs and the daemon. If the disk is faster or slower for a time, that affects all
// three.
func (c *Save) measure(ctx context.Context, b *Bench, cells []saveCell) error {
	d, err := b.Start(ctx, "save")
	if err != nil {
		return err
	}
	over, err := b.overwritten(cells)
	if err != nil {
		return err
	}
	defer over.remove()
	total := int64(c.Rounds * len(cells))
	for round := range c.Rounds {
		for i := range cells {
			cell := &cells[i]
			b.Shown.Say("round %d of %d: %s of %s%s", round+1, c.Rounds, term.Count(cell.Clients, "client"), daemon.Size(cell.Size),
				term.TimeLeft(b.Began, int64(round*len(cells)+i), total))
			if err := c.cell(ctx, b, d, over, cell, round); err != nil {
				return err
			}
		}
	}
	for i := range cells {
		cells[i].sum()
	}
	return nil
}

// overwritten returns a log that is large enough for every combination.
func (b *Bench) overwritten(cells []saveCell) (*rawLog, error) {
	var room int64
	for _, c := range cells {
		room = max(room, overwrittenSize(c.Clients, c.Size))
	}
	log, err := openRawLog(filepath.Join(b.Dir, "overwritten.log"), room, room)
	if err != nil {
		return nil, fmt.Errorf("writing a plain file: %w", err)
	}
	return log, nil
}

func (c *Save) cell(ctx context.Context, b *Bench, d *Daemon, over *rawLog, cell *saveCell, round int) error {
	var r saveRound
	l := Load{Clients: cell.Clients, During: c.Duration}
	pool := NewStates(c.Seed, cell.Size)
	parts := []func() error{
		func() (err error) { r.add, err = b.appendLoad(ctx, l, pool); return err },
		func() (err error) { r.over, err = rawLoad(ctx, l, pool, over); return err },
		func() (err error) { r.save, r.cost, err = b.saveLoad(ctx, d, l, pool, c.Runs); return err },
	}
	for i := range parts {
		if err := parts[(i+round)%len(parts)](); err != nil {
			return err
		}
	}
	cell.rounds = append(cell.rounds, r)
	return nil
}

// saveLoad makes clients save states, each into some runs. It also returns what a save
// has cost the daemon.
func (b *Bench) saveLoad(ctx context.Context, d *Daemon, l Load, pool *States, runs int) (Figures, *Cost, error) {
	if err := b.fillRuns(ctx, d, l.Clients, pool, runs); err != nil {
		return Figures{}, nil, err
	}
	before, err := usedBy(d.Cmd.Process.Pid)
	if err != nil {
		return Figures{}, nil, err
	}
	var saves atomic.Int64
	figures, err := l.Run(ctx, func(n int) (Task, error) {
		client, states, lots := d.ClientOf(n), pool.Reader(n), rand.New(rand.NewPCG(uint64(n), uint64(runs)))
		r := benchSave(pool, n)
		return func(ctx context.Context) (time.Duration, error) {
			r.State = states.Next()
			if runs > 1 {
				r.Run = runOf(lots.IntN(runs))
			}
			began := time.Now()
			_, err := client.Save(ctx, r)
			saves.Add(1)
			return time.Since(began), err
		}, nil
	})
	if err != nil {
		return Figures{}, nil, err
	}
	after, err := usedBy(d.Cmd.Process.Pid)
	return figures, costOf(before, after, saves.Load()), err
}

func benchSave(pool *States, client int) *ckpt.SaveRequest {
	return &ckpt.SaveRequest{Agent: fmt.Sprintf("bench-%d-%d", pool.size, client), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON}
}

func runOf(n int) string { return fmt.Sprintf("run-%d", n) }

// keptRoutine is how many routine checkpoints a run keeps by default: one more save
// removes one.
const keptRoutine = 3

// fillRuns creates the runs of each client, with as many checkpoints as they keep, so
// that the measurement is about saves into existing runs.
func (b *Bench) fillRuns(ctx context.Context, d *Daemon, clients int, pool *States, runs int) error {
	if runs == 1 {
		return nil
	}
	for n := range clients {
		r, states := benchSave(pool, n), pool.Reader(n)
		if d.filled[r.Agent] {
			continue
		}
		for i := range runs * keptRoutine {
			r.State, r.Run = states.Next(), runOf(i/keptRoutine)
			if _, err := d.ClientOf(n).Save(ctx, r); err != nil {
				return err
			}
		}
		if d.filled == nil {
			d.filled = map[string]bool{}
		}
		d.filled[r.Agent] = true
	}
	return nil
}

// appendLoad makes the clients append to one log instead, which is empty at first.
func (b *Bench) appendLoad(ctx context.Context, l Load, pool *States) (Figures, error) {
	log, err := openRawLog(filepath.Join(b.Dir, "appended.log"), 0, appendedSize(l.Clients, pool.size))
	if err != nil {
		return Figures{}, fmt.Errorf("writing a plain file: %w", err)
	}
	defer log.remove()
	return rawLoad(ctx, l, pool, log)
}

func rawLoad(ctx context.Context, l Load, pool *States, log *rawLog) (Figures, error) {
	return l.Run(ctx, func(n int) (Task, error) {
		states := pool.Reader(n)
		return func(context.Context) (time.Duration, error) {
			state := states.Next()
			began := time.Now()
			if err := log.write(state); err != nil {
				return 0, fmt.Errorf("writing a plain file: %w", err)
			}
			return time.Since(began), nil
		}, nil
	})
}

// sum computes the medians of the rounds.
func (c *saveCell) sum() {
	of := func(get func(saveRound) Figures) Figures {
		var list []Figures
		for _, r := range c.rounds {
			list = append(list, get(r))
		}
		return Medians(list)
	}
	c.Save = of(func(r saveRound) Figures { return r.save })
	c.Append = of(func(r saveRound) Figures { return r.add })
	c.Overwrite = of(func(r saveRound) Figures { return r.over })
	var costs []*Cost
	for _, r := range c.rounds {
		costs = append(costs, r.cost)
	}
	c.Cost = middleOf(costs)
	c.ToAppend = medianOf(c.rounds, func(r saveRound) float64 { return Ratio(r.save.PerSecond, r.add.PerSecond) })
	c.ToOver = medianOf(c.rounds, func(r saveRound) float64 { return Ratio(r.save.PerSecond, r.over.PerSecond) })
}

func (r *SaveReport) text(a *Env) {
	t := term.NewTable(">CLIENTS", ">SIZE", ">SAVES/S", ">P50", ">P99", ">CPU", ">WRITTEN", ">APPEND/S", ">P50", ">P99",
		">RATIO", ">OVERWRITE/S", ">P50", ">RATIO").Whole()
	for _, c := range r.Cells {
		t.Add(fmt.Sprint(c.Clients), daemon.Size(c.Size).String(), Rate(c.Save.PerSecond), term.Millis(c.Save.P50),
			term.Millis(c.Save.P99), c.Cost.cpu(), c.Cost.written(),
			Rate(c.Append.PerSecond), term.Millis(c.Append.P50), term.Millis(c.Append.P99), Times(c.ToAppend),
			Rate(c.Overwrite.PerSecond), term.Millis(c.Overwrite.P50), Times(c.ToOver))
	}
	t.Write(a.Stdout, a.Out)
	fmt.Fprintln(a.Stdout)
	r.plot().Write(a.Stdout, a.Out)
	if r.Memory != nil {
		r.Memory.text(a)
	}
	a.Tell("\nEach save was acknowledged after it was safe on the disk. APPEND and OVERWRITE are one log file into which all clients write,\n"+
		"each waiting for fdatasync, those that wait sharing one: a file that grows, and one that has its size. CPU and WRITTEN are what a save"+
		"\ncosts the daemon. Medians of %s of %gs.",
		term.Count(r.Rounds, "round"), r.Duration)
}

// plot compares the rates as bars.
func (r *SaveReport) plot() *Bars {
	p := &Bars{Title: "a second, all clients together"}
	for _, c := range r.Cells {
		p.group(fmt.Sprintf("%s, %s", daemon.Size(c.Size), term.Count(c.Clients, "client")),
			Bar{"saves", c.Save.PerSecond, Rate(c.Save.PerSecond)},
			Bar{"append", c.Append.PerSecond, Rate(c.Append.PerSecond)},
			Bar{"overwrite", c.Overwrite.PerSecond, Rate(c.Overwrite.PerSecond)})
	}
	return p
}
