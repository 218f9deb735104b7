package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// probe is one operation that is measured at every size. on makes its task for one database.
type probe struct {
	name, what string
	most       int // how often in a round; 0 for as often as time allows
	on         func(p *probing) measure.Task
}

// probing is a database under measurement, with its daemon running.
type probing struct {
	*scaleDatabase
	states *measure.StateReader
	random *rand.Rand
}

// fewSaves limits the saves to runs that keep all checkpoints, so that they do not noticeably
// enlarge the smallest database.
const fewSaves = 100

var probes = []probe{
	{"save", "save", 0, saveProbe("many-00", ckpt.MainRun)},
	{"save_long_run", "save, to a long run", fewSaves, saveProbe("long-00", ckpt.MainRun)},
	{"latest", "latest of a long run", 0, latestProbe("long-00", "")},
	{"latest_of_run", "latest of one of many runs", 0, latestProbe("many-00", "run-0000000")},
	{"latest_many_runs", "latest, agent with many runs", 0, latestProbe("many-00", "")},
	{"list", "list of 50, long run", 0, listProbe("long-00")},
	{"list_many_runs", "list of 50, many runs", 0, listProbe("many-00")},
	{"read", "read any checkpoint", 0, readProbe},
	{"resume_plan", "resume plan, long run", 0, planProbe("long-00", ckpt.MainRun)},
	{"resume_plan_many_runs", "resume plan, one of many runs", 0, planProbe("many-00", "run-0000000")},
	{"runs", "runs of an agent, 50", 0, runsProbe},
	{"agents", "agents", 0, agentsProbe},
	{"status", "status", 0, statusProbe},
}

func saveProbe(agent, run string) func(*probing) measure.Task {
	return func(p *probing) measure.Task {
		client := p.daemon.ClientOf(0)
		return func(ctx context.Context) (time.Duration, error) {
			r := &ckpt.SaveRequest{Agent: agent, Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: p.states.Next()}
			began := time.Now()
			_, err := client.Save(ctx, r)
			return time.Since(began), err
		}
	}
}

func latestProbe(agent, run string) func(*probing) measure.Task {
	return func(p *probing) measure.Task {
		return taskOf(func(ctx context.Context) error {
			_, err := p.daemon.ClientOf(0).Latest(ctx, ckpt.CheckpointFilter{Agent: agent, Run: run}, true)
			return err
		})
	}
}

func listProbe(agent string) func(*probing) measure.Task {
	return func(p *probing) measure.Task {
		return taskOf(func(ctx context.Context) error {
			page, err := p.daemon.ClientOf(0).Checkpoints(ctx, ckpt.CheckpointFilter{Agent: agent, Limit: 50})
			if err == nil && len(page.Checkpoints) == 0 {
				err = fmt.Errorf("the list of %s is empty", agent)
			}
			return err
		})
	}
}

func readProbe(p *probing) measure.Task {
	return taskOf(func(ctx context.Context) error {
		_, err := p.daemon.ClientOf(0).State(ctx, p.ids[p.random.IntN(len(p.ids))])
		return err
	})
}

func planProbe(agent, run string) func(*probing) measure.Task {
	return func(p *probing) measure.Task {
		return taskOf(func(ctx context.Context) error {
			plan, _, err := p.daemon.ClientOf(0).Resume(ctx, ckpt.ResumeRequest{Agent: agent, Run: run, DryRun: true})
			if err == nil && plan.Checkpoint == nil {
				err = fmt.Errorf("the plan for %s/%s has no checkpoint: %s", agent, run, plan.Verdict)
			}
			return err
		})
	}
}

func runsProbe(p *probing) measure.Task {
	return taskOf(func(ctx context.Context) error {
		_, err := p.daemon.ClientOf(0).Runs(ctx, ckpt.RunFilter{Agent: "many-00", Limit: 50})
		return err
	})
}

func agentsProbe(p *probing) measure.Task {
	return taskOf(func(ctx context.Context) error {
		_, err := p.daemon.ClientOf(0).Agents(ctx, ckpt.AgentFilter{})
		return err
	})
}

func statusProbe(p *probing) measure.Task {
	return taskOf(func(ctx context.Context) error {
		_, err := p.daemon.ClientOf(0).Status(ctx)
		return err
	})
}

// measure goes through the databases, and runs one daemon at a time: the background work of one
// daemon would disturb the measurement of another.
func (c *scaleCmd) measure(ctx context.Context, b *measure.Bench, r *scaleReport, pool *measure.States) error {
	r.Operations = scaleOperations(r.Databases)
	began, total := time.Now(), int64(c.Rounds*len(r.Databases))
	for round := range c.Rounds {
		for k := range r.Databases {
			i := (k + round) % len(r.Databases)
			b.Shown.Say("round %d of %d: %s checkpoints%s", round+1, c.Rounds, countText(r.Databases[i].Rows),
				term.TimeLeft(began, int64(round*len(r.Databases)+k), total))
			p := &probing{scaleDatabase: &r.Databases[i], states: pool.Reader(round), random: rand.New(rand.NewPCG(c.Seed, uint64(round)))}
			if err := c.round(ctx, p, r.Operations, i); err != nil {
				return err
			}
		}
	}
	for i := range r.Operations {
		r.Operations[i].sum()
	}
	return nil
}

const (
	opStart     = "start"
	opAfterKill = "start_after_kill"
)

// scaleOperations returns the probes, and the starts of the daemon.
func scaleOperations(databases []scaleDatabase) (list []scaleOperation) {
	add := func(name, what string) {
		o := scaleOperation{Operation: name, What: what}
		for _, d := range databases {
			o.Cells = append(o.Cells, scaleCell{Rows: d.Rows})
		}
		list = append(list, o)
	}
	for _, p := range probes {
		add(p.name, p.what)
	}
	add(opStart, "start, until ready")
	add(opAfterKill, "start after a kill -9, until ready")
	return list
}

// round measures one database once: the start, all probes, a kill, and the start after it.
func (c *scaleCmd) round(ctx context.Context, p *probing, operations []scaleOperation, i int) error {
	note := func(k int, f measure.Figures) {
		operations[k].Cells[i].rounds = append(operations[k].Cells[i].rounds, f)
	}
	d := p.daemon
	defer func() {
		d.HangUp()
		_ = d.Stop()
	}()
	took, err := d.Start(ctx)
	if err != nil {
		return err
	}
	note(len(probes), measure.FiguresOf([]float64{measure.Milliseconds(took)}, 0))
	for k, probe := range probes {
		l := measure.Load{Clients: 1, During: c.Duration, Most: probe.most}
		f, err := l.Run(ctx, func(int) (measure.Task, error) { return probe.on(p), nil })
		if err != nil {
			return fmt.Errorf("%s: %w", probe.what, err)
		}
		note(k, f)
	}
	d.HangUp()
	d.Kill()
	if took, err = d.Start(ctx); err != nil {
		return err
	}
	note(len(probes)+1, measure.FiguresOf([]float64{measure.Milliseconds(took)}, 0))
	return ctx.Err()
}

// sum takes the medians of the rounds. Ratios compare figures of the same round.
func (o *scaleOperation) sum() {
	for i := range o.Cells {
		c := &o.Cells[i]
		c.Figures = measure.Medians(c.rounds)
		var times []float64
		for round, f := range c.rounds {
			times = append(times, measure.Ratio(f.P50, o.Cells[0].rounds[round].P50))
		}
		c.Times = measure.Rounded(measure.Median(times))
	}
}

// taskOf returns a task that needs no preparation.
func taskOf(do func(context.Context) error) measure.Task {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := do(ctx)
		return time.Since(began), err
	}
}
