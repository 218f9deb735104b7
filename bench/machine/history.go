package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type historyCmd struct {
	measure.Flags `embed:""`
	Histories     []string `default:"chat,compacting,edited" help:"${histories} Default: ${default}."`
	Saves         int      `default:"1000" help:"How many saves each has. Default: ${default}."`
	Size          string   `default:"1800KiB" help:"How large chat is at its end; the others stay below two fifths of it. Default: ${default}."`
	Restores      int      `default:"100" help:"How many checkpoints of those that are left are restored at the end. Default: ${default}."`
}

// historiesReport is the output of --json.
type historiesReport struct {
	measure.Head
	Saves     int             `json:"saves"`
	Size      int64           `json:"size"`
	Histories []historyReport `json:"histories"`
}

// historyReport is one history. One client saved each of its states in each way, in turns.
type historyReport struct {
	History string       `json:"history"`
	Bytes   int64        `json:"states_bytes"`
	Last    int64        `json:"last_state_bytes"`
	Ways    []historyWay `json:"ways"`
}

// historyWay is the cost of a history that is kept and sent in one way. The database is the whole
// file, including audit log, keys and indexes.
type historyWay struct {
	Keep      int             `json:"routine_keep"` // 0 keeps all
	Sent      string          `json:"sent"`         // whole or change
	KeptBytes int64           `json:"kept_bytes"`   // of the states that still exist
	Database  int64           `json:"database_bytes"`
	Smaller   float64         `json:"times_smaller"` // kept_bytes divided by database_bytes
	Save      measure.Figures `json:"save"`
	First     measure.Figures `json:"save_first_tenth"`
	LastTenth measure.Figures `json:"save_last_tenth"`
	Restore   measure.Figures `json:"restore"`
	Series    historySeries   `json:"series"`

	daemon *measure.Daemon
	took   []float64
	saved  []keptState
}

// historySeries has the figures along the way, for plots: for each point, the median of the saves
// since the point before, and the size of the database.
type historySeries struct {
	Saves    []int     `json:"saves"`
	SaveP50  []float64 `json:"save_p50_ms"`
	Database []int64   `json:"database_bytes"`
}

type keptState struct {
	kept
	size int64
}

// seriesPoints is the maximum number of points of a series.
const seriesPoints = 60

func (c *historyCmd) Run(ctx context.Context, a *measure.Env) error {
	list, size, err := c.check()
	if err != nil {
		return err
	}
	return a.Measure(ctx, "history", c.Flags, 4*(20*size+64<<20), func(b *measure.Bench) error {
		report := historiesReport{Saves: c.Saves, Size: size}
		for i, g := range list {
			one, err := c.measure(ctx, b, g, size, i, len(list))
			if err != nil {
				return err
			}
			report.Histories = append(report.Histories, *one)
		}
		return b.Report(&report.Head, &report, func(a *measure.Env) { report.text(a) })
	})
}

func (c *historyCmd) check() (list []growth, size int64, err error) {
	sizes, err := measure.ParseSizes("--size", []string{c.Size}, 4<<10, 64<<20)
	if err != nil {
		return nil, 0, err
	}
	if c.Saves < 10 || c.Saves > 1_000_000 {
		return nil, 0, cli.Usagef("--saves is %d: it is between 10 and 1000000", c.Saves)
	}
	if c.Restores < 1 || c.Restores > 1_000_000 {
		return nil, 0, cli.Usagef("--restores is %d: it is between 1 and 1000000", c.Restores)
	}
	var names []string
	for _, h := range growths {
		names = append(names, h.name)
	}
	for _, name := range c.Histories {
		at := slices.Index(names, name)
		if at < 0 {
			return nil, 0, cli.Usagef("--histories has %q: there are %s", name, strings.Join(names, ", "))
		}
		list = append(list, growths[at])
	}
	if len(list) == 0 {
		return nil, 0, cli.Usagef("--histories names nothing: there are %s", strings.Join(names, ", "))
	}
	return list, sizes[0], nil
}

// measure saves one history in four ways, each with a separate daemon.
func (c *historyCmd) measure(ctx context.Context, b *measure.Bench, h growth, size int64, done, all int) (*historyReport, error) {
	r := &historyReport{History: h.name}
	for _, keep := range []int{0, ckpt.DefaultPolicy().RoutineKeep} {
		for _, sent := range []string{"whole", "change"} {
			d, err := b.Start(ctx, fmt.Sprintf("%s-%d-%s", h.name, keep, sent))
			if err != nil {
				return nil, err
			}
			r.Ways = append(r.Ways, historyWay{Keep: keep, Sent: sent, daemon: d})
		}
	}
	for i := range r.Ways {
		if err := r.Ways[i].prepare(ctx); err != nil {
			return nil, err
		}
	}
	next := h.make(measure.NewMaterial(c.Seed), c.Saves, size)
	for i := range c.Saves {
		b.Shown.Say("%s: save %d of %d%s", h.name, i+1, c.Saves, term.TimeLeft(b.Began, int64(done*c.Saves+i), int64(all*c.Saves)))
		if err := r.save(ctx, next(), i, c.Saves); err != nil {
			return nil, err
		}
	}
	for i := range r.Ways {
		b.Shown.Say("%s: restoring", h.name)
		if err := r.Ways[i].finish(ctx, b, c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (w *historyWay) prepare(ctx context.Context) error {
	client := w.daemon.ClientOf(0)
	client.Whole = w.Sent == "whole"
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = w.Keep
	_, err := client.SetPolicy(ctx, measure.Agent, policy)
	return err
}

// save saves the next state in each way. It starts with a different way each time.
func (r *historyReport) save(ctx context.Context, state []byte, i, saves int) error {
	hash, size := hashOf(state), int64(len(state))
	r.Bytes, r.Last = r.Bytes+size, size
	for k := range r.Ways {
		w := &r.Ways[(i+k)%len(r.Ways)]
		began := time.Now()
		saved, err := measure.SaveMain(ctx, w.daemon.ClientOf(0), state)
		if err != nil {
			return err
		}
		w.took = append(w.took, measure.Milliseconds(time.Since(began)))
		w.saved = append(w.saved, keptState{kept{measure.Agent, ckpt.MainRun, saved.ID, hash}, size})
	}
	if points := min(seriesPoints, saves); (i+1)*points/saves > i*points/saves {
		for k := range r.Ways {
			if err := r.Ways[k].point(); err != nil {
				return err
			}
		}
	}
	return nil
}

// point records the current figures.
func (w *historyWay) point() error {
	size, err := databaseBytes(w.daemon.Database)
	if err != nil {
		return err
	}
	from := 0
	if n := len(w.Series.Saves); n > 0 {
		from = w.Series.Saves[n-1]
	}
	w.Series.Saves = append(w.Series.Saves, len(w.took))
	w.Series.SaveP50 = append(w.Series.SaveP50, measure.Rounded(measure.Median(w.took[from:])))
	w.Series.Database = append(w.Series.Database, size)
	return nil
}

// finish restores some of the remaining checkpoints, and computes the totals.
func (w *historyWay) finish(ctx context.Context, b *measure.Bench, c *historyCmd) error {
	if w.Keep > 0 {
		w.saved = w.saved[max(0, len(w.saved)-w.Keep):]
	}
	for _, s := range w.saved {
		w.KeptBytes += s.size
	}
	tenth := max(1, len(w.took)/10)
	w.First = measure.FiguresOf(slices.Clone(w.took[:tenth]), 0)
	w.LastTenth = measure.FiguresOf(slices.Clone(w.took[len(w.took)-tenth:]), 0)
	w.Save = measure.FiguresOf(slices.Clone(w.took), 0)
	var err error
	if w.Restore, err = w.restore(ctx, c); err != nil {
		return err
	}
	w.daemon.HangUp()
	if err := w.daemon.Stop(); err != nil {
		return err
	}
	if w.Database, err = databaseBytes(w.daemon.Database); err != nil {
		return err
	}
	w.Smaller = measure.Ratio(float64(w.KeptBytes), float64(w.Database))
	return b.End(w.daemon)
}

func (w *historyWay) restore(ctx context.Context, c *historyCmd) (measure.Figures, error) {
	random := rand.New(rand.NewPCG(c.Seed, 1))
	client := w.daemon.ClientOf(0)
	var times []float64
	for range c.Restores {
		one := w.saved[random.IntN(len(w.saved))].kept
		took, err := restoreTask(one, func(ctx context.Context) ([]byte, error) {
			got, _, err := client.Restore(ctx, ckpt.RestoreRequest{Agent: one.agent, Checkpoint: one.id, Reason: "bench"})
			if err != nil {
				return nil, err
			}
			return got.State, nil
		})(ctx)
		if err != nil {
			return measure.Figures{}, err
		}
		times = append(times, measure.Milliseconds(took))
	}
	return measure.FiguresOf(times, 0), nil
}
