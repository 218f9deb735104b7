package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type restoreCmd struct {
	measure.Flags `embed:""`
	Clients       []int         `default:"1,16" help:"How many clients restore at once, each over a connection of its own. Default: ${default}."`
	Sizes         []string      `default:"2KiB,64KiB,1MiB" help:"How large the states are. Default: ${default}."`
	Saves         int           `default:"100" help:"${restored} Default: ${default}."`
	Rounds        int           `default:"3" help:"How many interleaved rounds to measure. The median counts. Default: ${default}."`
	Duration      time.Duration `default:"500ms" help:"How long each is measured in a round. Default: ${default}."`
}

// restoreReport is the output of --json.
type restoreReport struct {
	measure.Head
	Rounds   int           `json:"rounds"`
	Duration float64       `json:"duration_seconds"`
	Saves    int           `json:"saves"`
	Cells    []restoreCell `json:"cells"`
}

// restoreCell is one combination of size, age and clients: medians over the rounds. A restore is
// recorded in the audit log, so it waits for the disk; a read is not recorded.
type restoreCell struct {
	Size    int64           `json:"size"`
	Age     string          `json:"age"` // alone, newest, middle or oldest
	Clients int             `json:"clients"`
	Restore measure.Figures `json:"restore"`
	Read    measure.Figures `json:"read"`
	Rate    float64         `json:"restored_mb_per_second"`

	of              kept
	restores, reads []measure.Figures
}

// kept is a saved checkpoint, and the hash that its state must have.
type kept struct{ agent, run, id, sha256 string }

// wholeUpTo is the size up to which the store keeps a state in its row, so that its age makes no
// difference.
const wholeUpTo = 4 << 10

func (c *restoreCmd) Run(ctx context.Context, a *measure.Env) error {
	sizes, need, err := c.check()
	if err != nil {
		return err
	}
	return a.Measure(ctx, "restore", c.Flags, need, func(b *measure.Bench) error {
		report := restoreReport{Rounds: c.Rounds, Duration: c.Duration.Seconds(), Saves: c.Saves}
		d, err := b.Start(ctx, "restore")
		if err != nil {
			return err
		}
		for _, size := range sizes {
			b.Shown.Say("saving states of %s", daemon.Size(size))
			cells, err := c.prepare(ctx, d.ClientOf(0), size)
			if err != nil {
				return err
			}
			report.Cells = append(report.Cells, cells...)
		}
		if err := c.measure(ctx, b, d, report.Cells); err != nil {
			return err
		}
		return b.Report(&report.Head, &report, func(a *measure.Env) { report.text(a) })
	})
}

func (c *restoreCmd) check() (sizes []int64, need int64, err error) {
	if sizes, err = measure.ParseSizes("--sizes", c.Sizes, measure.LeastState, 64<<20); err != nil {
		return nil, 0, err
	}
	if err := measure.CheckClients(c.Clients); err != nil {
		return nil, 0, err
	}
	if err := measure.CheckRounds(c.Rounds, c.Duration); err != nil {
		return nil, 0, err
	}
	if c.Saves < 1 || c.Saves > 100_000 {
		return nil, 0, cli.Usagef("--saves is %d: it is between 1 and 100000", c.Saves)
	}
	for _, size := range sizes {
		need += 4 * size
	}
	return sizes, need + 256<<20, nil
}

// prepare saves the states that are restored later.
func (c *restoreCmd) prepare(ctx context.Context, client *client.Client, size int64) (cells []restoreCell, err error) {
	agent := fmt.Sprintf("bench-%d", size)
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 0
	if _, err := client.SetPolicy(ctx, agent, policy); err != nil {
		return nil, err
	}
	m := measure.NewMaterial(c.Seed)
	add := func(age string, of kept) {
		for _, n := range c.Clients {
			cells = append(cells, restoreCell{Size: size, Age: age, Clients: n, of: of})
		}
	}
	alone, err := saveKept(ctx, client, agent, "alone", m.State(size))
	if err != nil {
		return nil, err
	}
	add("alone", alone)
	if size <= wholeUpTo {
		return cells, nil
	}
	history := newConversation(m)
	var all []kept
	for range c.Saves {
		one, err := saveKept(ctx, client, agent, "grown", history.slide(size))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	add("newest", all[len(all)-1])
	add("middle", all[len(all)/2])
	add("oldest", all[0])
	return cells, nil
}

func saveKept(ctx context.Context, client *client.Client, agent, run string, state []byte) (kept, error) {
	saved, err := client.Save(ctx, &ckpt.SaveRequest{Agent: agent, Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state})
	if err != nil {
		return kept{}, err
	}
	return kept{agent, run, saved.ID, hashOf(state)}, nil
}

func hashOf(state []byte) string {
	sum := sha256.Sum256(state)
	return hex.EncodeToString(sum[:])
}

func (c *restoreCmd) measure(ctx context.Context, b *measure.Bench, d *measure.Daemon, cells []restoreCell) error {
	began, total := time.Now(), int64(c.Rounds*len(cells))
	for round := range c.Rounds {
		for i := range cells {
			cell := &cells[i]
			b.Shown.Say("round %d of %d: %s of %s, %s%s", round+1, c.Rounds, term.Count(cell.Clients, "client"), daemon.Size(cell.Size), cell.Age,
				term.TimeLeft(began, int64(round*len(cells)+i), total))
			if err := c.cell(ctx, d, cell); err != nil {
				return err
			}
		}
	}
	for i := range cells {
		cell := &cells[i]
		cell.Restore, cell.Read = measure.Medians(cell.restores), measure.Medians(cell.reads)
		cell.Rate = measure.Rounded(cell.Restore.PerSecond * float64(cell.Size) / 1e6)
	}
	return nil
}

func (c *restoreCmd) cell(ctx context.Context, d *measure.Daemon, cell *restoreCell) error {
	l := measure.Load{Clients: cell.Clients, During: c.Duration}
	restored, err := l.Run(ctx, func(n int) (measure.Task, error) {
		return restoreTask(cell.of, func(ctx context.Context) ([]byte, error) {
			got, _, err := d.ClientOf(n).Restore(ctx, ckpt.RestoreRequest{
				Agent: cell.of.agent, Run: cell.of.run, Checkpoint: cell.of.id, Reason: "bench",
			})
			if err != nil {
				return nil, err
			}
			return got.State, nil
		}), nil
	})
	if err != nil {
		return err
	}
	read, err := l.Run(ctx, func(n int) (measure.Task, error) {
		return restoreTask(cell.of, func(ctx context.Context) ([]byte, error) { return d.ClientOf(n).State(ctx, cell.of.id) }), nil
	})
	cell.restores, cell.reads = append(cell.restores, restored), append(cell.reads, read)
	return err
}

// restoreTask checks the bytes the first time, and their number each time.
func restoreTask(of kept, get func(context.Context) ([]byte, error)) measure.Task {
	size := -1
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		state, err := get(ctx)
		took := time.Since(began)
		switch {
		case err != nil:
			return 0, err
		case size < 0 && hashOf(state) != of.sha256, size >= 0 && len(state) != size:
			return 0, fmt.Errorf("checkpoint %s came back with other bytes than were saved (%d of them)", of.id, len(state))
		}
		size = len(state)
		return took, nil
	}
}

func (r *restoreReport) text(a *measure.Env) {
	t := term.NewTable(">SIZE", "AGE", ">CLIENTS", ">RESTORES/S", ">MB/S", ">P50", ">P99", ">READS/S", ">P50", ">P99")
	p := &measure.Bars{Title: "restored and recorded, p50"}
	for _, c := range r.Cells {
		t.Add(daemon.Size(c.Size).String(), c.Age, fmt.Sprint(c.Clients), measure.Rate(c.Restore.PerSecond),
			term.Digits(c.Rate), term.Millis(c.Restore.P50), term.Millis(c.Restore.P99),
			measure.Rate(c.Read.PerSecond), term.Millis(c.Read.P50), term.Millis(c.Read.P99))
		p.Join(fmt.Sprintf("%s, %s", daemon.Size(c.Size), term.Count(c.Clients, "client")), measure.Bar{Name: c.Age,
			Value: c.Restore.P50, Text: term.Millis(c.Restore.P50)})
	}
	t.Write(a.Stdout, a.Out)
	fmt.Fprintln(a.Stdout)
	p.Write(a.Stdout, a.Out)
	a.Tell("\nA restore is recorded in the audit log and waits for the disk; a read is not. Both check the state's "+
		"hash. ALONE is a state that was saved\n"+
		"once; the others are of a run of %s that keeps its size, stored as pieces. Medians of %s of %gs.",
		term.Count(r.Saves, "save"), term.Count(r.Rounds, "round"), r.Duration)
}
