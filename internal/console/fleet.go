package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// fleetView shows what this host's daemon knows about all hosts. Only administrators see
// the engine, the hosts and the strands.
type fleetView struct {
	frame
	Status  *fleet.Status
	Sealed  string
	Behind  string
	Lease   string
	Claims  string // why they wait, "" if they do not
	Hosts   []fleetHost
	Strands []fleetStrand
	Filters []filter
	Agent   string
	Runs    []fleetRun
	Next    string // the address of the next page
	Trouble string // why the engine gave no answer
}

type fleetHost struct {
	fleet.HostShown
	Lease draw.Badge
	Seen  string
	Href  string // the address of its runs
}

type fleetRun struct {
	fleet.RunShown
	Status  draw.Badge
	Changed *ckpt.Time // nil if the engine does not know it
	Here    string     // the page of the run, "" for a run of another host
	Claim   string     // the form that brings it here
}

type fleetStrand struct {
	fleet.Strand
	Run string // the page of the run on this host
}

// mostRunsOfFleet is how many runs of the fleet a page lists.
const mostRunsOfFleet = 100

// fleetPatience is how long a page waits for the engine.
const fleetPatience = 5 * time.Second

func (c *Console) fleet(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), fleetPatience)
	defer cancel()
	q, line := r.URL.Query(), c.daemon.all()
	v := &fleetView{frame: c.frameOf(r, "Fleet", "fleet"), Agent: q.Get("agent")}
	var err error
	if c.daemon.isAdmin() {
		if v.Status, err = line.Fleet(ctx); err != nil {
			c.trouble(w, r, err)
			return
		}
		v.describe(v.Status)
		v.addStrands(v.Status.Strands)
	}
	err = v.ask(ctx, line, q)
	switch {
	case away(err):
		c.trouble(w, r, err)
		return
	case err != nil:
		v.Trouble = messageOf(err)
	}
	c.show(w, r, http.StatusOK, "fleet", v)
}

// ask reads what the engine knows.
func (v *fleetView) ask(ctx context.Context, line client.Operator, q url.Values) error {
	if v.Status != nil && !v.Status.On {
		return nil
	}
	var hosts []fleet.HostShown
	if v.Admin {
		all, err := line.FleetHosts(ctx)
		if err != nil {
			return err
		}
		hosts = all.Hosts
		v.addHosts(hosts)
	}
	runs, err := line.FleetRuns(ctx, fleet.RunsQuery{
		Host: q.Get("host"), Agent: v.Agent, Status: q.Get("status"), Before: q.Get("before"), Limit: mostRunsOfFleet,
	})
	if err != nil {
		return err
	}
	v.addFilters(hosts, q)
	v.addRuns(runs, hosts, q)
	return nil
}

// describe describes the status of shipping in words.
func (v *fleetView) describe(st *fleet.Status) {
	switch {
	case st.Clear:
		v.Sealed = "in the clear: who can read the engine can read the states"
	case len(st.Keys) == 0:
		v.Sealed = "sealed with the keys of fleet.key_file, which the daemon reads when it ships"
	default:
		v.Sealed = "sealed with " + strings.Join(st.Keys, ", ")
	}
	v.Behind = "nothing"
	if st.Unshipped > 0 {
		v.Behind = fmt.Sprintf("%s, the oldest for %s", draw.Plural(int(st.Unshipped), "row"), ageOf(st.Lag))
	}
	if len(st.Noticed) > 0 {
		v.Claims = fmt.Sprintf("wait for a person: the engine went back, as these hosts noticed: %s; ckptsidecar fleet check says what to do", strings.Join(st.Noticed, ", "))
	}
	v.Lease = "none"
	if st.Lease != "" {
		v.Lease = fmt.Sprintf("%s, %s of %s left", st.Lease, ageOf(st.LeaseLeft), ageOf(st.LeaseSpan))
	}
}

// ageOf returns a number of seconds for people.
func ageOf(s float64) string { return draw.Age(time.Duration(s * float64(time.Second))) }

func (v *fleetView) addHosts(hosts []fleet.HostShown) {
	for _, h := range hosts {
		row := fleetHost{HostShown: h, Seen: ageOf(h.SeenAgo), Href: v.Base + "fleet?host=" + url.QueryEscape(h.DB)}
		switch {
		case h.Forgotten:
			row.Lease = draw.Badge{Icon: "lost", Word: "forgotten"}
		case h.Lease == nil:
			row.Lease = draw.Badge{Icon: "pause", Word: "no lease"}
		case *h.Lease > 0:
			row.Lease = draw.Badge{Class: "live", Icon: "live", Word: "alive"}
		default:
			row.Lease = draw.Badge{Class: "warn", Icon: "lost", Word: "lease over"}
		}
		v.Hosts = append(v.Hosts, row)
	}
}

func (v *fleetView) addStrands(strands []fleet.Strand) {
	for _, s := range strands {
		v.Strands = append(v.Strands, fleetStrand{Strand: s, Run: runPath(v.Base, s.Owner, s.Agent, s.Run)})
	}
}

func (v *fleetView) addFilters(hosts []fleet.HostShown, q url.Values) {
	statuses, names := []option{{Label: "every status"}}, []option{{Label: "every host"}}
	for _, s := range ckpt.RunStatuses {
		statuses = append(statuses, option{Value: string(s), Label: draw.StatusBadge(s).Word, Chosen: q.Get("status") == string(s)})
	}
	for _, h := range hosts {
		names = append(names, option{Value: h.DB, Label: h.Name, Chosen: q.Get("host") == h.DB})
	}
	v.Filters = []filter{{"status", "Status", statuses}}
	if len(hosts) > 0 {
		v.Filters = append(v.Filters, filter{"host", "Host", names})
	}
}

func (v *fleetView) addRuns(page *fleet.Runs, hosts []fleet.HostShown, q url.Values) {
	others := map[string]bool{}
	for _, h := range hosts {
		others[h.DB] = !h.This
	}
	for _, r := range page.Runs {
		row := fleetRun{RunShown: r, Status: draw.StatusBadge(ckpt.RunStatus(r.Status))}
		if at, err := ckpt.ParseTime(r.UpdatedAt); err == nil {
			row.Changed = &at
		}
		if r.This {
			row.Here = runPath(v.Base, r.Owner, r.Agent, r.Run)
		}
		if others[r.DB] {
			row.Claim = v.Base + "ask/claim?" + url.Values{
				"owner": {r.Owner}, "agent": {r.Agent}, "run": {r.Run}, "host": {r.DB}, "name": {r.Host},
			}.Encode()
		}
		v.Runs = append(v.Runs, row)
	}
	if page.Next != nil {
		next := url.Values{"agent": {v.Agent}, "status": {q.Get("status")}, "host": {q.Get("host")}, "before": {*page.Next}}
		v.Next = v.Base + "fleet?" + next.Encode()
	}
}

// askClaim returns the form that moves a run of another host to this host.
func askClaim(_ *Console, _ context.Context, s *subject, q url.Values) (*askView, error) {
	return &askView{
		Reason: true, Do: "Claim it", Heading: fmt.Sprintf("Claim %s / %s", s.ref.Agent, q.Get("run")),
		Intro: fmt.Sprintf("Host %s has this run. The engine gives it to this host, and the other one is fenced: its writes to the run are refused. "+
			"If the run was running, a person decides about what was open before it goes on.", q.Get("name")),
		Fields: []field{{ID: "force", Name: "force", Label: "Claim it although its host is alive", Kind: "yes",
			Help: "Only where you know that the host is lost, or that the agent there has stopped."}},
		Hidden: []pair{{"run", q.Get("run")}, {"host", q.Get("host")}, {"name", q.Get("name")}},
	}, nil
}

func actClaim(c *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	reason, err := why(q)
	if err != nil {
		return done{}, err
	}
	claimed, err := c.daemon.all().ClaimRun(client.WithReason(ctx, reason), fleet.ClaimRequest{
		Agent: s.ref.Agent, Run: q.Get("run"), Owner: s.owner, Host: q.Get("host"), Force: q.Get("force") != "",
	})
	if err != nil {
		return done{}, err
	}
	said := fmt.Sprintf("Claimed: %s / %s is on this host now, with %s.", claimed.Agent, claimed.Run, draw.Plural(claimed.Checkpoints, "checkpoint"))
	if n := len(claimed.Damaged); n > 0 {
		said += fmt.Sprintf(" The engine's copy of %s is damaged or does not open, and was left out.", draw.Plural(n, "row"))
	}
	if claimed.Uncertain != "" {
		said += " Decide about what was open before it goes on."
	}
	return done{said, runPath(sessionBase(s.page), claimed.Owner, claimed.Agent, claimed.Run)}, nil
}

// sessionBase returns the address of the session, from the address of the fleet page.
func sessionBase(page string) string { return strings.TrimSuffix(page, "fleet") }
