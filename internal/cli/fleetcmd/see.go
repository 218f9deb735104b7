package fleetcmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type statusCmd struct{}

// Help returns the additional text of `fleet status --help`.
func (*statusCmd) Help() string {
	return `The daemon answers. It does not ask the engine: it tells what it knows.
The exit code is 1 if nothing is shipped, and 4 if this host belongs to no fleet.
Without a daemon, ckptsidecar fleet check asks the engine itself.`
}

func (c *statusCmd) Run(ctx context.Context, a *cli.App) error {
	s, err := client.Operator{Client: a.Client()}.Fleet(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.WriteJSON(s)
	} else if s.On {
		statusText(a, s)
	}
	switch {
	case err != nil:
		return err
	case !s.On:
		return &cli.ExitError{
			Code:    cli.ExitConflict,
			Message: "this daemon belongs to no fleet: set fleet.engine_file, and restart it; see docs/FLEET.md",
		}
	case s.State != fleet.StateShipping && s.State != fleet.StateConnecting:
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	return nil
}

func statusText(a *cli.App, s *fleet.Status) {
	state := a.Out.Red(s.State)
	switch s.State {
	case fleet.StateShipping:
		state = a.Out.Green(s.State)
	case fleet.StateConnecting:
		state = a.Out.Yellow(s.State)
	}
	term.Printf(a.Stdout, "%s  %s\n", a.Out.Bold("fleet"), state)
	if s.Error != "" {
		a.Out.Hanging(a.Stdout, "  "+a.Out.Red("!")+" ", term.Escape(s.Error))
	}
	p := &term.Pairs{}
	p.Add("host", s.Name+", database "+s.DB)
	if s.Address != "" {
		p.Add("engine", s.Address)
	}
	if s.Engine != "" {
		p.Add("profile", s.Profile+", "+s.Engine)
		p.Add("engine id", s.EngineID)
	}
	if s.Ship == fleet.ShipPolicy {
		p.Add("ships", "only agents with durability: fleet or takeover: auto")
	}
	p.Add("mark", fmt.Sprintf("row %d of the audit log", s.Mark.N))
	p.Add("not shipped", term.Count(s.Unshipped, "row")+lagText(s))
	p.Add("batches", batchesText(s))
	if s.WentBack > 0 {
		p.Add("went back", term.Count(s.WentBack, "time")+" since the daemon began: the engine had lost what it had acknowledged, and got it again")
	}
	if len(s.Noticed) > 0 {
		p.Add("claims", a.Out.Yellow("wait")+" for a person: the engine went back, as these hosts noticed: "+strings.Join(s.Noticed, ", ")+
			"; see ckptsidecar fleet check; fleet claim --force does not wait")
	}
	for _, x := range s.Strands {
		p.Add("only here", fmt.Sprintf("%s of run %s of %s (%s), which host %s has: keep with ckptsidecar export %s -o FILE, then ckptsidecar run delete %s --run %s",
			term.Count(x.Checkpoints, "checkpoint"), x.Run, x.Agent, x.Owner, x.Host, x.Agent, x.Agent, x.Run))
	}
	for _, x := range s.Erasures {
		var names []string
		for _, h := range x.Waits {
			names = append(names, h.Name)
		}
		agent := "agent " + x.Agent
		if x.Agent == "" { // fleet.ship is policy on that host
			agent = "an agent"
		}
		p.Add("erasure", fmt.Sprintf("%s of %s, on host %s: waiting for %s; if a host is gone for good: ckptsidecar fleet forget HOST",
			agent, x.Owner, x.Host, strings.Join(names, ", ")))
	}
	for _, local := range slices.Sorted(maps.Keys(s.Principals)) {
		p.Add("principal", local+" is "+s.Principals[local])
	}
	for _, realm := range slices.Sorted(maps.Keys(s.Realms)) {
		p.Add("realm", realm+" has "+s.Realms[realm])
	}
	p.Add("lease", leaseText(a, s))
	switch {
	case s.Clear:
		p.Add("stored", "in the clear: whoever may read the engine reads states and texts; fleet.key_file seals them")
	case len(s.Keys) == 0:
		p.Add("sealed with", "the keys of fleet.key_file, which the daemon reads when it ships")
	default:
		p.Add("sealed with", strings.Join(s.Keys, ", "))
	}
	p.Write(a.Stdout, a.Out)
}

func leaseText(a *cli.App, s *fleet.Status) string {
	if s.Lease == "held" {
		return fmt.Sprintf("held for %.1f s more, of %g s; this host claims %g s after another's lease", s.LeaseLeft, s.LeaseSpan, s.Grace)
	}
	text := a.Out.Yellow("doubtful") + ": another host may own the runs of this one"
	if s.LeaseError != "" {
		text += "; " + s.LeaseError
	}
	return text
}

func lagText(s *fleet.Status) string {
	if s.Unshipped == 0 {
		return ""
	}
	return fmt.Sprintf(", the oldest for %.1f s", s.Lag)
}

func batchesText(s *fleet.Status) string {
	if s.Batches == 0 {
		return "none since the daemon began"
	}
	return fmt.Sprintf("%d since the daemon began, the last one took %.3f s", s.Batches, s.Took)
}

// seeFlags choose what to ask: the daemon, or the engine itself.
type seeFlags struct {
	engineFlags `embed:""`
	Direct      bool `help:"Ask the engine that the settings name, not the daemon, as a URL does. It shows what your role in the engine may read."`
}

// direct returns the URL of the engine to ask directly, "" for the daemon.
func (f *seeFlags) direct(a *cli.App) (string, error) {
	switch {
	case f.URL == "" && !f.Direct && f.System:
		return "", cli.Usagef("--system says which settings name the engine: it needs --direct")
	case f.URL == "" && !f.Direct:
		return "", nil
	}
	return f.find(a)
}

// nearEngine adds how to ask without a daemon.
func nearEngine(err error) error {
	if daemon.Unreachable(err) {
		return fmt.Errorf("%w; without a daemon, --direct asks the engine itself", err)
	}
	return err
}

type hostsCmd struct {
	seeFlags `embed:""`
}

func (c *hostsCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.direct(a)
	if err != nil {
		return err
	}
	var all *fleet.Hosts
	if url != "" {
		all, err = host.Hosts(ctx, url)
	} else {
		all, err = client.Operator{Client: a.Client()}.FleetHosts(ctx)
	}
	switch {
	case err != nil:
		return nearEngine(err)
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Hosts) == 0:
		a.Tell("no host has shipped to this engine")
		return nil
	}
	t := term.NewTable("HOST", "SEEN", ">LEASE", ">RUNS", ">ROW", "?VERSION", "#DATABASE")
	for _, h := range all.Hosts {
		name := h.Name
		if h.This {
			name += " (here)"
		}
		t.Add(name, seenText(&h), leaseOf(&h), fmt.Sprint(h.Runs), fmt.Sprint(h.MarkN), h.Version, h.DB)
	}
	t.Write(a.Stdout, a.Out)
	return nil
}

// seenText says when the engine heard from a host, by the engine's clock.
func seenText(h *fleet.HostShown) string {
	now := time.Now()
	return term.Ago(now, now.Add(-time.Duration(h.SeenAgo*float64(time.Second))))
}

// leaseOf says how much time of a host's lease is left, by the engine's clock.
func leaseOf(h *fleet.HostShown) string {
	switch {
	case h.Forgotten:
		return "forgotten"
	case h.Lease == nil:
		return "none"
	case *h.Lease <= 0:
		return "over"
	}
	return fmt.Sprintf("%.0f s", *h.Lease)
}

// RunsQuery are the flags that choose runs of the fleet.
type RunsQuery struct {
	Host      string `help:"Only of this host, by name or database." placeholder:"NAME"`
	Principal string `help:"Only of this principal, such as acme/build." placeholder:"NAME"`
	Agent     string `help:"Only of agents of this name." placeholder:"NAME"`
	Status    string `help:"Only runs of this status." placeholder:"STATUS"`
	cli.Paged
}

type runsCmd struct {
	seeFlags  `embed:""`
	RunsQuery `embed:""`
}

func (c *runsCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.direct(a)
	if err != nil {
		return err
	}
	return c.List(ctx, a, url)
}

// List lists runs of the fleet. It asks the daemon, or the engine at a URL.
func (c *RunsQuery) List(ctx context.Context, a *cli.App, url string) (err error) {
	filter := ckpt.RunFilter{Agent: c.Agent}
	if err := cli.Checked(c.Paged.Check(), cli.Given(c.Status, view.CheckRunStatus), filter.Check()); err != nil {
		return err
	}
	all := &fleet.Runs{Runs: []fleet.RunShown{}}
	next, err := c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		q := fleet.RunsQuery{Host: c.Host, Principal: c.Principal, Agent: c.Agent, Status: c.Status, Before: before, Limit: limit}
		if _, _, ok := q.After(); !ok {
			return "", cli.Usagef("--before is no cursor of a page of the fleet's runs")
		}
		page, err := askRuns(ctx, a, url, q)
		if err != nil {
			return "", err
		}
		all.Runs, all.Next = append(all.Runs, page.Runs...), page.Next
		if page.Next == nil {
			return "", nil
		}
		return ckpt.Ref(*page.Next), nil
	})
	switch {
	case err != nil:
		return nearEngine(err)
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Runs) == 0:
		a.Tell("no run of the fleet matches")
		return nil
	}
	t := term.NewTable("HOST", "AGENT", "RUN", "STATUS", "CHANGED", ">CHECKPOINT", ">?TERM", "?OWNER", "?PRINCIPAL", "#UID")
	for _, r := range all.Runs {
		t.Add(r.Host, r.Agent, r.Run, view.RunStatus(ckpt.RunStatus(r.Status), a.Out), changedText(a, r.UpdatedAt),
			fmt.Sprint(r.Seq), fmt.Sprint(r.Term), r.Owner, r.Principal, r.UID)
	}
	t.Write(a.Stdout, a.Out)
	c.Paged.More(a, next)
	return nil
}

func askRuns(ctx context.Context, a *cli.App, url string, q fleet.RunsQuery) (*fleet.Runs, error) {
	if url != "" {
		return host.Runs(ctx, url, q)
	}
	return client.Operator{Client: a.Client()}.FleetRuns(ctx, q)
}

// changedText returns a time for people. It returns a text that no daemon has written
// unchanged.
func changedText(a *cli.App, text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return a.Out.Time(ckpt.At(t))
}
