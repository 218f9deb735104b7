package console

import (
	"context"
	"errors"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// daemon is the connection to the daemon, with the rights of the caller. There is one
// connection for each owner whose agents are shown, because the name of an agent is
// unique only for one owner.
type daemon struct {
	options Options
	who     string

	mu    sync.Mutex
	lines map[string]*client.Client
	admin *bool // nil until the daemon was asked
	fleet *bool // whether the daemon belongs to a fleet; nil until it was asked
	since time.Time

	overviews sync.Mutex // one request at a time, for any number of pages
	last      *survey.Overview
	asked     time.Time
	took      time.Duration // the duration of the last request
	recorders []recorded    // the newest last
	span      ckpt.Duration // of the time axis
	spanned   time.Time     // when that length was chosen
}

// recorded is a recorder that was read.
type recorded struct {
	key string
	at  time.Time
	rec *survey.Recorder
}

// maxRecorders is how many recorders the console keeps.
const maxRecorders = 4

// keptRecorder returns a recorder that was read a moment ago, as it is now; nil if there is none.
func (d *daemon) keptRecorder(key string, now time.Time) *survey.Recorder {
	d.overviews.Lock()
	defer d.overviews.Unlock()
	for _, x := range d.recorders {
		age := now.Sub(x.at)
		if x.key != key || age > recorderLasts {
			continue
		}
		rec := *x.rec
		if rec.Ended.Equal(rec.At.Time) { // somebody runs it
			if rec.To.Equal(rec.Ended.Time) {
				rec.To = ckpt.At(rec.To.Add(age))
			}
			rec.Ended, rec.Sums.WorkedMS = ckpt.At(rec.Ended.Add(age)), rec.Sums.WorkedMS+age.Milliseconds()
		}
		rec.At = ckpt.At(rec.At.Add(age))
		return &rec
	}
	return nil
}

func (d *daemon) keepRecorder(key string, rec *survey.Recorder, now time.Time) {
	d.overviews.Lock()
	defer d.overviews.Unlock()
	if d.recorders = append(d.recorders, recorded{key, now, rec}); len(d.recorders) > maxRecorders {
		d.recorders = d.recorders[1:]
	}
}

// maxLines is how many connections stay open.
const maxLines = 16

func newDaemon(o Options) *daemon {
	return &daemon{options: o, lines: map[string]*client.Client{}, who: client.Self()}
}

// of returns the connection for an owner's agents.
func (d *daemon) of(owner string) client.Operator {
	if owner == d.who {
		owner = ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	line := d.lines[owner]
	if line == nil {
		if len(d.lines) >= maxLines {
			for name, old := range d.lines {
				old.Close()
				delete(d.lines, name)
				break
			}
		}
		line = connection(d.options.Socket, owner)
		d.lines[owner] = line
	}
	return client.Operator{Client: line}
}

// all returns the connection for everything that the console shows.
func (d *daemon) all() client.Operator {
	if d.options.Owner == "" && d.isAdmin() {
		return d.of(ckpt.AllOwners)
	}
	return d.of(d.options.Owner)
}

// isAdmin reports whether the caller can see the agents of all owners.
func (d *daemon) isAdmin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.admin != nil && *d.admin
}

// inFleet reports whether the daemon belongs to a fleet, if the caller may know that.
func (d *daemon) inFleet() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fleet != nil && *d.fleet
}

// learn finds out once whether the caller is an administrator, and whether there is a
// fleet.
func (d *daemon) learn(ctx context.Context) error {
	if err := d.learnAdmin(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	known := d.fleet != nil
	d.mu.Unlock()
	if known {
		return nil
	}
	is := d.askFleet(ctx)
	d.mu.Lock()
	d.fleet = &is
	d.mu.Unlock()
	return nil
}

func (d *daemon) learnAdmin(ctx context.Context) error {
	d.mu.Lock()
	known := d.admin != nil
	d.mu.Unlock()
	if known {
		return nil
	}
	_, err := d.of(ckpt.AllOwners).Agents(ctx, ckpt.AgentFilter{Limit: 1})
	var e *ckpt.Error
	denied := errors.As(err, &e) && e.Code == ckpt.CodeDenied
	if err != nil && !denied {
		return err
	}
	is := err == nil
	d.mu.Lock()
	d.admin = &is
	d.mu.Unlock()
	return nil
}

// freshFor is how long all pages share an overview. Pages ask every two seconds. If the
// daemon needs long for an overview, the console asks less often.
const (
	freshFor  = 900 * time.Millisecond
	staleMost = 10 * time.Second
)

// overview reads what needs a person, and the runs.
func (d *daemon) overview(ctx context.Context) (*survey.Overview, error) {
	if err := d.learn(ctx); err != nil {
		return nil, err
	}
	d.overviews.Lock()
	defer d.overviews.Unlock()
	now := d.options.Now()
	if d.last != nil && now.Sub(d.asked) < d.restLocked() {
		return d.last, nil
	}
	began := time.Now()
	defer func() { d.took = time.Since(began) }()
	if now.Sub(d.spanned) > chooseEvery {
		v, _, err := d.all().Overview(ctx, survey.OverviewQuery{})
		if err != nil {
			return nil, err
		}
		d.spanned, d.last = now, v
		if span := spanOf(v); span != spans[len(spans)-1] {
			d.span, d.last = span, nil
		} else {
			d.span, d.asked = 0, now
			d.isBack()
			return d.last, nil
		}
	}
	q := survey.OverviewQuery{Span: d.span}
	if d.last != nil {
		q.ETag = d.last.ETag
	}
	v, same, err := d.all().Overview(ctx, q)
	if err != nil {
		return nil, err
	}
	if !same {
		d.last = v
	}
	d.asked = now
	d.isBack()
	return d.last, nil
}

// due returns how long it takes until an overview that was read after a change is
// available.
func (d *daemon) due(changed time.Time) time.Duration {
	d.overviews.Lock()
	defer d.overviews.Unlock()
	if d.asked.After(changed) {
		return 0
	}
	return d.asked.Add(d.restLocked()).Sub(d.options.Now())
}

// restLocked returns how long an overview is shared. d.overviews must be held.
func (d *daemon) restLocked() time.Duration { return max(freshFor, min(share*d.took, staleMost)) }

// chooseEvery is how often the length of the time axis is chosen.
const chooseEvery = time.Minute

// spans are the lengths of the time axis. If everything on it is recent, a short one
// shows more detail.
var spans = []ckpt.Duration{
	ckpt.Duration(2 * time.Minute), ckpt.Duration(5 * time.Minute), ckpt.Duration(10 * time.Minute),
	ckpt.Duration(30 * time.Minute), ckpt.Duration(2 * time.Hour),
}

func spanOf(o *survey.Overview) ckpt.Duration {
	oldest := o.At
	for i := range o.Runs {
		if t := o.Runs[i].StartedAt; t.Before(oldest.Time) {
			oldest = t
		}
	}
	for _, s := range spans {
		if o.At.Sub(oldest.Time) < time.Duration(s)*19/20 && len(o.Runs) > 0 {
			return s
		}
	}
	return spans[len(spans)-1]
}

// forget makes the next overview be read again, because something has just changed.
func (d *daemon) forget() {
	d.overviews.Lock()
	defer d.overviews.Unlock()
	d.asked, d.recorders = time.Time{}, nil
}

// isAway records since when no daemon answers.
func (d *daemon) isAway(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		d.since, d.fleet = now, nil // it can come back with other settings
	}
}

func (d *daemon) isBack() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since = time.Time{}
}

func (d *daemon) awaySince() ckpt.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return ckpt.Time{}
	}
	return ckpt.At(d.since)
}

func (d *daemon) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range d.lines {
		line.Close()
	}
}

// askFleet asks the daemon whether it belongs to a fleet.
func (d *daemon) askFleet(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if d.isAdmin() {
		st, err := d.all().Fleet(ctx)
		return err == nil && st.On
	}
	_, err := d.all().FleetRuns(ctx, fleet.RunsQuery{Limit: 1})
	var e *ckpt.Error
	return !errors.As(err, &e) || e.Code != ckpt.CodeConflict // the answer of a daemon without a fleet
}

// away reports whether an error means that no daemon answered, or that it did not answer in time.
func away(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var nobody *client.DialError
	if errors.As(err, &nobody) {
		return true
	}
	var e *ckpt.Error
	return errors.As(err, &e) && e.Code == ckpt.CodeBusy && e.Err != nil && !errors.Is(err, context.Canceled) && errors.As(e.Err, &nobody)
}
