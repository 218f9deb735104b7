package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Operator adds the calls that a page for operators needs to those of its Client. They are
// not methods of Client, because agents need none of them.
type Operator struct{ *Client }

// Overview reads what needs a person, and the runs on one time axis. If same is true,
// nothing has changed since the answer whose ETag is in the query; then there is no other
// answer.
func (o Operator) Overview(ctx context.Context, f survey.OverviewQuery) (v *survey.Overview, same bool, err error) {
	a := &ask{method: http.MethodGet, path: "/v1/overview", repeatable: true, conditional: true}
	if f.Span != 0 {
		a.query.add("span", f.Span.String())
	}
	a.query.addLimit(f.Limit)
	if f.ETag != "" {
		a.header = http.Header{"If-None-Match": {strconv.Quote(f.ETag)}}
	}
	ans, err := o.do(ctx, a)
	if err != nil || len(ans.body) == 0 {
		return nil, err == nil, err
	}
	v = new(survey.Overview)
	v, err = orNil(v, readAnswer(ans.body, v, false))
	return v, false, err
}

// Chown gives agents of one owner to another. If the same request is repeated with the same
// key, it returns the first answer. For administrators.
func (o Operator) Chown(ctx context.Context, r ckpt.ChownRequest, key string) (done *ckpt.Chowned, replayed bool, err error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	a, err := keyedAsk("/v1/owners/chown", r, key)
	if err != nil {
		return nil, false, err
	}
	done = new(ckpt.Chowned)
	ans, err := o.fetch(ctx, a, done)
	if err != nil {
		return nil, false, err
	}
	return done, ans.replayed(), nil
}

// VerifyChain makes the daemon check the chain of its audit log. For administrators.
func (o Operator) VerifyChain(ctx context.Context) (*survey.Verified, error) {
	a, err := jsonAsk(http.MethodPost, "/v1/verify", survey.VerifyRequest{Chain: true})
	if err != nil {
		return nil, err
	}
	a.repeatable, a.write = true, false
	v := new(survey.Verified)
	_, err = o.fetch(ctx, a, v)
	return orNil(v, err)
}

// Forecast reads what retention will remove next.
func (o Operator) Forecast(ctx context.Context, f survey.ForecastQuery) (*survey.Forecast, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	a := &ask{method: http.MethodGet, path: "/v1/retention/forecast", repeatable: true}
	if f.Agent != "" {
		a.path = agentPath(f.Agent) + "/retention/forecast"
	}
	for name, d := range map[string]*ckpt.Duration{"recovery_keep": f.RecoveryKeep,
		"pre_operation_keep": f.PreOperationKeep, "ended_keep": f.EndedKeep} {
		if d != nil {
			a.query.add(name, d.String())
		}
	}
	if f.RoutineKeep != nil {
		a.query.add("routine_keep", strconv.Itoa(*f.RoutineKeep))
	}
	if f.MaxBytes != nil {
		a.query.add("max_bytes", strconv.FormatInt(*f.MaxBytes, 10))
	}
	a.query.addLimit(f.Limit)
	v := new(survey.Forecast)
	_, err := o.fetch(ctx, a, v)
	return orNil(v, err)
}

// Changes calls f with each change, until ctx ends or f returns an error. The first one is
// survey.ChangedBegin. If the daemon restarts, Changes connects again, and
// survey.ChangedBegin comes again: the changes in between are not reported. Changes also
// connects again if f returns the error of a call for which the daemon was away or busy.
func (o Operator) Changes(ctx context.Context, f func(survey.Change) error) error {
	return o.changes(ctx, false, f)
}

// ChangesUntilAway is Changes for a caller that shows that the daemon is away: it ends when
// the daemon goes away, and does not connect again.
func (o Operator) ChangesUntilAway(ctx context.Context, f func(survey.Change) error) error {
	return o.changes(ctx, true, f)
}

func (o Operator) changes(ctx context.Context, single bool, f func(survey.Change) error) error {
	return o.follow(ctx, follower{client: o.Client, path: "/v1/changes", single: single, tell: func(line []byte, _ int64) (int64, bool, error) {
		var c survey.Change
		if err := json.Unmarshal(line, &c); err != nil {
			return 0, false, misunderstood(err, false)
		}
		err := f(c)
		return 0, err != nil && (single || !passes(err)), err
	}})
}

// PolicyOf reads an agent's policy with the source of each value, and the tag that
// ReplacePolicy needs.
func (o Operator) PolicyOf(ctx context.Context, agent string) (*ckpt.PolicyLayers, string, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, "", err
	}
	a := &ask{method: http.MethodGet, path: agentPath(agent) + "/policy", repeatable: true}
	a.query.add("layers", "true")
	layers := new(ckpt.PolicyLayers)
	ans, err := o.fetch(ctx, a, layers)
	if err != nil {
		return nil, "", err
	}
	layers.Policy.Fill()
	tag, _ := strconv.Unquote(ans.header.Get("Etag"))
	return layers, tag, nil
}

// ReplacePolicy is SetOwnPolicy, but returns conflict if the agent's policy no longer has
// this tag.
func (o Operator) ReplacePolicy(ctx context.Context, agent string, own ckpt.JSON, tag string) (*ckpt.Policy, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	return o.setPolicy(ctx, agent, own, tag)
}

// Settings reads the settings that the daemon uses. For administrators.
func (o Operator) Settings(ctx context.Context) (*survey.Settings, error) {
	v := new(survey.Settings)
	_, err := o.fetch(ctx, probe("/v1/settings"), v)
	return orNil(v, err)
}

// Fleet reads the status of shipping to the fleet's engine. For administrators.
func (o Operator) Fleet(ctx context.Context) (*fleet.Status, error) {
	v := new(fleet.Status)
	_, err := o.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/fleet", repeatable: true}, v)
	return orNil(v, err)
}

// FleetHosts lists the hosts of the fleet. For administrators.
func (o Operator) FleetHosts(ctx context.Context) (*fleet.Hosts, error) {
	v := new(fleet.Hosts)
	_, err := o.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/fleet/hosts", repeatable: true}, v)
	return orNil(v, err)
}

// FleetRuns lists one page of the runs of all hosts that the caller may see, the most
// recently changed first. It does not send For and Owner of the query: the daemon knows
// them.
func (o Operator) FleetRuns(ctx context.Context, f fleet.RunsQuery) (*fleet.Runs, error) {
	var q values
	q.add("host", f.Host)
	q.add("principal", f.Principal)
	q.add("agent", f.Agent)
	q.add("status", f.Status)
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	v := new(fleet.Runs)
	_, err := o.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/fleet/runs", query: q, repeatable: true}, v)
	return orNil(v, err)
}

// Findings lists one page of the findings of all runs, newest first.
func (o Operator) Findings(ctx context.Context, f survey.FindingsQuery) (*survey.Findings, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	var q values
	q.add("agent", f.Agent)
	q.add("run", f.Run)
	q.add("rule", f.Rule)
	q.add("severity", string(f.Severity))
	q.add("since", f.Since.String())
	q.add("until", f.Until.String())
	if f.Closed {
		q.add("closed", "true")
	}
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	page := new(survey.Findings)
	_, err := o.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/findings", query: q, repeatable: true}, page)
	return orNil(page, err)
}

// Recorder reads the flight recorder of a run.
func (o Operator) Recorder(ctx context.Context, ref ckpt.RunRef, f survey.RecorderQuery) (*survey.Recorder, error) {
	var q values
	q.add("from", f.From.String())
	q.add("to", f.To.String())
	if f.Bins != 0 {
		q.add("bins", strconv.Itoa(f.Bins))
	}
	return fetchPart[survey.Recorder](ctx, o.Client, ref, "recorder", q)
}

// Transcript reads a page of a run's steps, with the beginnings of their texts.
func (o Operator) Transcript(ctx context.Context, ref ckpt.RunRef, f survey.TranscriptQuery) (*survey.Transcript, error) {
	var q values
	q.add("at", f.At)
	q.add("before", f.Before)
	q.add("after", f.After)
	q.add("from", f.From.String())
	if f.Failed {
		q.add("failed", "true")
	}
	if f.Text != 0 {
		q.add("text", strconv.Itoa(f.Text))
	}
	q.addLimit(f.Limit)
	return fetchPart[survey.Transcript](ctx, o.Client, ref, "transcript", q)
}
