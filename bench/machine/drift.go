package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type driftCmd struct {
	Files  []string `arg:"" help:"Recorded runs: JSON lines, plain or gzip; - for standard input."`
	Policy string   `help:"Judge with this policy, a JSON file. Default: the policy of an agent that has set none." placeholder:"FILE"`
	Part   string   `help:"Only part K of N, chosen by the runs' ids: tune on one part and check on another." placeholder:"K/N"`
}

func (c *driftCmd) Help() string {
	return `Runs the drift detectors of the daemon over recorded runs whose outcome is known, and prints in what share of them each tier fired at least once, by source and outcome, and how many steps that took (the median).

A line is one run: {"id", "source", "outcome", "onset"?, "steps": [{"tool", "args", "result", "error", "duration_ms"?, "input_tokens"?, "output_tokens"?, "cost_usd"?, "progress"?}]}. Where a run has an onset, the number of the step (from 0) at which a fault was injected, only findings at or after it count, and the delay counts from there.

A finding that is critical counts for the tier warn as well.`
}

func (c *driftCmd) Run(ctx context.Context, a *measure.Env) error {
	part, err := parsePart(c.Part)
	if err != nil {
		return err
	}
	policy, err := c.policy()
	if err != nil {
		return err
	}
	watch := drift.New()
	if err := watch.Check(&policy); err != nil {
		return err
	}
	sums, p := newDriftSums(), a.Progress("judging runs:")
	for _, path := range c.Files {
		err := eachTrace(a.Stdin, path, func(t *trace, read, size int64) error {
			if part.has(t.ID) {
				sums.add(t, judge(watch, &policy, t))
			}
			p.Step(read, size)
			return ctx.Err()
		})
		if err != nil {
			p.Done()
			return err
		}
	}
	p.Done()
	if sums.runs == 0 {
		return fmt.Errorf("no run was judged: %s", strings.Join(c.Files, ", "))
	}
	if a.JSON {
		return term.WriteJSON(a.Stdout, struct {
			Rows []driftRow `json:"rows"`
		}{sums.rows()})
	}
	sums.write(a.Stdout, a.Out)
	return nil
}

func (c *driftCmd) policy() (ckpt.Policy, error) {
	if c.Policy == "" {
		return ckpt.DefaultPolicy(), nil
	}
	data, err := os.ReadFile(c.Policy)
	if err != nil {
		return ckpt.Policy{}, err
	}
	return wellformed.ParsePolicy(data)
}

// judge answers what is found in a run, by the number of the step.
func judge(watch ckpt.DriftWatch, policy *ckpt.Policy, t *trace) map[int][]ckpt.Found {
	run := ckpt.RuleRun{Agent: t.Source, Run: t.ID, Attempt: 1}
	watched := watch.Watch(policy, ckpt.RunPast{StartedAt: traceStart})
	found := map[int][]ckpt.Found{}
	at := traceStart
	for i := range t.Steps {
		step := t.Steps[i].step(i, &at)
		run.Steps = int64(i)
		if len(policy.Rules) > 0 {
			run.Measures = watched.Measures()
		}
		print, _ := watch.Step(context.Background(), policy, run, &step) // its only error is the context's
		if f := watched.Step(print); len(f) > 0 {
			found[i] = f
		}
	}
	return found
}

// part is a share of the runs: all of them where of is 0.
type part struct{ k, of uint64 }

func parsePart(s string) (part, error) {
	if s == "" {
		return part{}, nil
	}
	left, right, _ := strings.Cut(s, "/")
	k, err1 := strconv.ParseUint(left, 10, 16)
	n, err2 := strconv.ParseUint(right, 10, 16)
	if err1 != nil || err2 != nil || k < 1 || k > n {
		return part{}, cli.Usagef("--part is %q: say for example 1/2 for the first of two halves", s)
	}
	return part{k - 1, n}, nil
}

func (p part) has(id string) bool {
	if p.of == 0 {
		return true
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()%p.of == p.k
}
