package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type benchSaveCmd struct {
	benchFlags `embed:""`
	Clients    []int         `default:"1,16,64" help:"How many clients save at once, each for an agent and over a connection of its own. Default: ${default}."`
	Sizes      []string      `default:"2KiB,64KiB" help:"How large the states are. They have nothing in common from one save to the next; bench history measures states that grow. Default: ${default}."`
	Rounds     int           `default:"3" help:"How often each is measured, in turns; the median counts. Default: ${default}."`
	Duration   time.Duration `default:"1s" help:"How long each is measured in a round. Default: ${default}."`
	Memory     bool          `help:"Also measure the daemon's memory: idle, under many clients with large states, and with one very large state."`
	MemoryOf   memoryFlags   `embed:"" prefix:"memory-"`
}

// benchSaveReport is the answer of --json.
type benchSaveReport struct {
	benchHead
	Rounds   int           `json:"rounds"`
	Duration float64       `json:"duration_seconds"`
	Cells    []saveCell    `json:"cells"`
	Memory   *memoryReport `json:"memory,omitempty"`
}

// saveCell is one combination of clients and size: medians over the rounds,
// also of the ratios, which are taken within each round.
type saveCell struct {
	Clients   int     `json:"clients"`
	Size      int64   `json:"size"`
	Save      figures `json:"save"`
	Append    figures `json:"append"`
	Overwrite figures `json:"overwrite"`
	ToAppend  float64 `json:"save_to_append"`
	ToOver    float64 `json:"save_to_overwrite"`

	rounds []saveRound
}

type saveRound struct{ save, add, over figures }

func (c *benchSaveCmd) Run(ctx context.Context, a *app) error {
	cells, need, err := c.plan()
	if err != nil {
		return err
	}
	memory, err := c.MemoryOf.plan()
	if err != nil {
		return err
	}
	return a.measure(ctx, "save", c.benchFlags, need, func(b *bench) error {
		report := benchSaveReport{Rounds: c.Rounds, Duration: c.Duration.Seconds(), Cells: cells}
		if err := c.measure(ctx, b, report.Cells); err != nil {
			return err
		}
		if c.Memory {
			report.Memory = memory
			if err := b.memory(ctx, c.MemoryOf, memory); err != nil {
				return err
			}
		}
		return b.report(&report.benchHead, &report, func(a *app) { report.text(a) })
	})
}

// plan is every combination, in the order in which it is measured, and about
// how much disk that takes.
func (c *benchSaveCmd) plan() (cells []saveCell, need int64, err error) {
	sizes, err := parseSizes("--sizes", c.Sizes, 64, 64<<20)
	if err != nil {
		return nil, 0, err
	}
	if err := checkClients(c.Clients); err != nil {
		return nil, 0, err
	}
	if err := checkRounds(c.Rounds, c.Duration); err != nil {
		return nil, 0, err
	}
	for _, size := range sizes {
		for _, clients := range c.Clients {
			if int64(clients)*size > 1<<30 {
				return nil, 0, cli.Usagef("%d clients with states of %s would need more than 1 GiB of memory: measure fewer or smaller ones", clients, daemon.Size(size))
			}
			cells = append(cells, saveCell{Clients: clients, Size: size})
			need = max(need, int64(clients)*size*8)
		}
	}
	return cells, need + 1<<30, nil
}

// measure goes round all combinations: in each of them the two logs and the
// daemon in turns, so that a disk that is faster or slower for a while is so
// for all three.
func (c *benchSaveCmd) measure(ctx context.Context, b *bench, cells []saveCell) error {
	d, err := b.start(ctx, "save")
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
			b.shown.Say("round %d of %d: %s of %s%s", round+1, c.Rounds, term.Count(cell.Clients, "client"), daemon.Size(cell.Size),
				term.TimeLeft(b.began, int64(round*len(cells)+i), total))
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

// overwritten is a log as large as the daemon lets its own grow, or as the
// largest batch needs.
func (b *bench) overwritten(cells []saveCell) (*rawLog, error) {
	room := int64(32 << 20)
	for _, c := range cells {
		room = max(room, 2*int64(c.Clients)*c.Size)
	}
	log, err := openRawLog(filepath.Join(b.dir, "overwritten.log"), room)
	if err != nil {
		return nil, fmt.Errorf("writing a plain file: %w", err)
	}
	return log, nil
}

func (c *benchSaveCmd) cell(ctx context.Context, b *bench, d *measuredDaemon, over *rawLog, cell *saveCell, round int) error {
	var r saveRound
	l := load{clients: cell.Clients, during: c.Duration}
	pool := newStates(c.Seed, cell.Size)
	parts := []func() error{
		func() (err error) { r.add, err = b.appendLoad(ctx, l, pool); return err },
		func() (err error) { r.over, err = rawLoad(ctx, l, pool, over); return err },
		func() (err error) { r.save, err = b.saveLoad(ctx, d, l, pool); return err },
	}
	for i := range parts {
		if err := parts[(i+round)%len(parts)](); err != nil {
			return err
		}
	}
	cell.rounds = append(cell.rounds, r)
	return nil
}

// saveLoad lets clients save states.
func (b *bench) saveLoad(ctx context.Context, d *measuredDaemon, l load, pool *states) (figures, error) {
	return l.run(ctx, func(n int) (task, error) {
		client, states := d.clientOf(n), pool.reader(n)
		r := &ckpt.SaveRequest{Agent: fmt.Sprintf("bench-%d-%d", pool.size, n), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON}
		return func(ctx context.Context) (time.Duration, error) {
			r.State = states.next()
			began := time.Now()
			_, err := client.Save(ctx, r)
			return time.Since(began), err
		}, nil
	})
}

// appendLoad lets them append to one log instead, which begins empty.
func (b *bench) appendLoad(ctx context.Context, l load, pool *states) (figures, error) {
	log, err := openRawLog(filepath.Join(b.dir, "appended.log"), 0)
	if err != nil {
		return figures{}, fmt.Errorf("writing a plain file: %w", err)
	}
	defer log.remove()
	return rawLoad(ctx, l, pool, log)
}

func rawLoad(ctx context.Context, l load, pool *states, log *rawLog) (figures, error) {
	return l.run(ctx, func(n int) (task, error) {
		states := pool.reader(n)
		return func(context.Context) (time.Duration, error) {
			state := states.next()
			began := time.Now()
			if err := log.write(state); err != nil {
				return 0, fmt.Errorf("writing a plain file: %w", err)
			}
			return time.Since(began), nil
		}, nil
	})
}

// sum takes the medians of the rounds.
func (c *saveCell) sum() {
	of := func(get func(saveRound) figures) figures {
		var list []figures
		for _, r := range c.rounds {
			list = append(list, get(r))
		}
		return medians(list)
	}
	c.Save = of(func(r saveRound) figures { return r.save })
	c.Append = of(func(r saveRound) figures { return r.add })
	c.Overwrite = of(func(r saveRound) figures { return r.over })
	c.ToAppend = medianOf(c.rounds, func(r saveRound) float64 { return ratio(r.save.PerSecond, r.add.PerSecond) })
	c.ToOver = medianOf(c.rounds, func(r saveRound) float64 { return ratio(r.save.PerSecond, r.over.PerSecond) })
}

func (r *benchSaveReport) text(a *app) {
	t := term.NewTable(">CLIENTS", ">SIZE", ">SAVES/S", ">P50", ">P99", ">APPEND/S", ">P50", ">P99", ">RATIO", ">OVERWRITE/S", ">P50", ">RATIO")
	for _, c := range r.Cells {
		t.Add(fmt.Sprint(c.Clients), daemon.Size(c.Size).String(), rateText(c.Save.PerSecond), term.Millis(c.Save.P50), term.Millis(c.Save.P99),
			rateText(c.Append.PerSecond), term.Millis(c.Append.P50), term.Millis(c.Append.P99), timesText(c.ToAppend),
			rateText(c.Overwrite.PerSecond), term.Millis(c.Overwrite.P50), timesText(c.ToOver))
	}
	t.Write(a.stdout, a.out)
	fmt.Fprintln(a.stdout)
	r.plot().write(a.stdout, a.out)
	if r.Memory != nil {
		r.Memory.text(a)
	}
	a.tell("\nEach save was acknowledged after it was safe on the disk. APPEND and OVERWRITE are one log file into which all clients write,\n"+
		"each waiting for fdatasync, those that wait sharing one: a file that grows, and one that has its size. Medians of %s of %gs.",
		term.Count(r.Rounds, "round"), r.Duration)
}

// plot sets the rates side by side.
func (r *benchSaveReport) plot() *barPlot {
	p := &barPlot{title: "a second, all clients together"}
	for _, c := range r.Cells {
		p.group(fmt.Sprintf("%s, %s", daemon.Size(c.Size), term.Count(c.Clients, "client")),
			bar{"saves", c.Save.PerSecond, rateText(c.Save.PerSecond)},
			bar{"append", c.Append.PerSecond, rateText(c.Append.PerSecond)},
			bar{"overwrite", c.Overwrite.PerSecond, rateText(c.Overwrite.PerSecond)})
	}
	return p
}
