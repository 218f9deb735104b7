package foreign

import (
	"cmp"
	"errors"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// found is one foreign state that was read.
type found struct {
	file     File
	top      object
	workflow string // the foreign name of the workflow; "" for none
	run      string // the foreign name of the run
	at       time.Time
	started  time.Time
	counter  float64
	from     original
	program  *ckpt.Program
	notes    []string
}

// order compares two states of one run.
func (s found) order(t found) int {
	return cmp.Or(cmp.Compare(s.counter, t.counter), s.at.Compare(t.at), cmp.Compare(s.from.Checkpoint, t.from.Checkpoint))
}

// group makes one plan from the states of each run, in the order in which the runs
// occur. It refuses another run that would get the same name, because two histories
// must not become one.
func (o Options) group(r *Result, format Format, list []found, finish func(*Plan, []found) error) {
	type name struct{ agent, run string }
	runs := map[name][]found{}
	var names []name
	for _, s := range list {
		agent, err := o.agent(s.workflow)
		if err != nil {
			r.refuse(s.file.Name, "%s", sentence(err))
			continue
		}
		n := name{agent, RunName(s.run)}
		first, there := runs[n]
		switch {
		case !there:
			names = append(names, n)
		case first[0].workflow != s.workflow || first[0].run != s.run:
			r.refuse(s.file.Name, "it is of run %q of %q, and run %s of agent %s is that of %q in %s: import it by itself with another --agent",
				printable(s.run, 64), printable(s.workflow, 64), n.run, n.agent, printable(first[0].workflow, 64), first[0].file.Name)
			continue
		}
		runs[n] = append(runs[n], s)
	}
	for _, n := range names {
		slices.SortStableFunc(runs[n], found.order)
		p := Plan{Format: format, Agent: n.agent, Run: n.run}
		if err := o.fill(&p, runs[n], finish); err != nil {
			for _, s := range runs[n] {
				r.refuse(s.file.Name, "%s", sentence(err))
			}
			continue
		}
		r.Plans = append(r.Plans, p)
	}
}

func (o Options) agent(workflow string) (string, error) {
	if o.Agent != "" {
		return o.Agent, ckpt.CheckAgentName(o.Agent)
	}
	if workflow == "" {
		return "", ckpt.Errorf(ckpt.CodeInvalid, "it does not name an agent: give one with --agent")
	}
	return AgentName(workflow), nil
}

// fill makes the saves, and leaves the rest to the function finish.
func (o Options) fill(p *Plan, list []found, finish func(*Plan, []found) error) error {
	ids := map[string]bool{}
	for _, s := range list {
		save, err := o.save(p, s.file.Data, s.at, s.from)
		if err != nil {
			return err
		}
		if ids[save.ID] {
			p.note("%s is the same checkpoint again", s.file.Name)
			continue
		}
		ids[save.ID] = true
		save.Program = s.program
		p.Saves = append(p.Saves, save)
		p.Times = append(p.Times, s.at)
		p.Sources = append(p.Sources, s.file.Name)
		p.Notes = append(p.Notes, s.notes...)
	}
	p.Started = list[0].started
	last := list[len(list)-1]
	p.Start.Workflow = p.long("name of the workflow", last.workflow)
	if last.run != p.Run {
		p.Start.ExternalSession = p.long("name of the run", last.run)
	}
	if err := finish(p, list); err != nil {
		return err
	}
	return p.finish()
}

// sentence returns the message of a check's error without its code.
func sentence(err error) string {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}
