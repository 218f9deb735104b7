package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// getOverview returns what needs a person and the state of the runs, or says that nothing
// has changed.
func (c *call) getOverview() error {
	var f survey.OverviewQuery
	var err error
	if f.Span, err = c.query.duration("span"); err != nil {
		return err
	}
	limit, err := c.query.number("limit", 1, survey.MaxRuns)
	if err != nil {
		return err
	}
	if limit != nil {
		f.Limit = int(*limit)
	}
	if f.ETag, err = c.noneMatch(); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	v, same, err := c.server.store.Surveys.Overview(ctx, c.scope, f)
	if err != nil {
		return err
	}
	if same {
		c.Header()["Etag"] = []string{strconv.Quote(f.ETag)}
		c.giveTime(0)
		c.WriteHeader(http.StatusNotModified)
		return nil
	}
	c.Header()["Etag"] = []string{strconv.Quote(v.ETag)}
	return c.sendJSON(http.StatusOK, v)
}

// getRecorder returns the flight recorder of a run.
func (c *call) getRecorder() error {
	var f survey.RecorderQuery
	var err error
	if f.From, err = c.query.time("from"); err != nil {
		return err
	}
	if f.To, err = c.query.time("to"); err != nil {
		return err
	}
	bins, err := c.query.number("bins", survey.MinBins, survey.MaxBins)
	if err != nil {
		return err
	}
	if bins != nil {
		f.Bins = int(*bins)
	}
	return read(c, false, func(ctx context.Context) (*survey.Recorder, error) {
		return c.server.store.Surveys.Recorder(ctx, c.scope, c.ref(), f)
	})
}

// getTranscript returns a page of a run's steps.
func (c *call) getTranscript() error {
	f := survey.TranscriptQuery{At: c.query.get("at"), Before: c.query.get("before"), After: c.query.get("after")}
	var err error
	if f.From, err = c.query.time("from"); err != nil {
		return err
	}
	failed, err := c.query.flag("failed")
	if err != nil {
		return err
	}
	f.Failed = failed != nil && *failed
	text, err := c.query.number("text", 1, survey.MaxText)
	if err != nil {
		return err
	}
	if text != nil {
		f.Text = int(*text)
	}
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*survey.Transcript, error) {
		return c.server.store.Surveys.Transcript(ctx, c.scope, c.ref(), f)
	})
}

// getForecast returns what retention will remove next.
func (c *call) getForecast() error {
	f := survey.ForecastQuery{Agent: c.agent}
	for name, to := range map[string]**ckpt.Duration{"recovery_keep": &f.RecoveryKeep,
		"pre_operation_keep": &f.PreOperationKeep, "ended_keep": &f.EndedKeep} {
		if c.query.get(name) == "" {
			continue
		}
		d, err := c.query.duration(name)
		if err != nil {
			return err
		}
		*to = &d
	}
	keep, err := c.query.number("routine_keep", 0, 1<<31-1)
	if err != nil {
		return err
	}
	if keep != nil {
		n := int(*keep)
		f.RoutineKeep = &n
	}
	if f.MaxBytes, err = c.query.number("max_bytes", 0, 1<<62); err != nil {
		return err
	}
	limit, err := c.query.number("limit", 1, survey.MaxForecast)
	if err != nil {
		return err
	}
	if limit != nil {
		f.Limit = int(*limit)
	}
	return read(c, true, func(ctx context.Context) (*survey.Forecast, error) {
		return c.server.store.Surveys.Forecast(ctx, c.scope, f)
	})
}

// changesEvery is the shortest time between two messages to a follower of changes.
// Changes in between are combined.
const changesEvery = 100 * time.Millisecond

// followChanges streams changes as lines of JSON, until the client leaves or the server
// stops. It counts as one of the owner's followers.
func (c *call) followChanges() error {
	if following, err := c.query.is("follow", false); err != nil || !following {
		return cmp.Or(err, error(ckpt.Errorf(ckpt.CodeInvalid, "this path follows changes: add follow=true")))
	}
	if err := c.beFollower(); err != nil {
		return err
	}
	next, stop := c.server.store.Surveys.WatchChanges(c.scope)
	defer stop()
	ctx, cancel := c.following()
	defer cancel()
	list := []survey.Change{{What: survey.ChangedBegin}}
	for {
		err := sendEvents(ctx, c, list)
		if err == nil && c.r.Method != http.MethodHead {
			if err = c.pause(ctx, changesEvery); err == nil {
				list, err = next(ctx)
			}
		}
		switch {
		case ctx.Err() != nil:
			return c.letGo()
		case errors.Is(err, errGone) || c.r.Method == http.MethodHead && err == nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// pause waits for a time, or until the context ends.
func (*call) pause(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listFindings lists the findings of all runs.
func (c *call) listFindings() error {
	f := survey.FindingsQuery{Agent: c.query.get("agent"), Run: c.query.get("run"), Rule: c.query.get("rule"),
		Severity: ckpt.Severity(c.query.get("severity")), Before: c.query.get("before")}
	var err error
	if f.Since, err = c.query.time("since"); err != nil {
		return err
	}
	if f.Until, err = c.query.time("until"); err != nil {
		return err
	}
	if f.Closed, err = c.query.is("closed", false); err != nil {
		return err
	}
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	return read(c, true, func(ctx context.Context) (*survey.Findings, error) {
		return c.server.store.Surveys.Findings(ctx, c.scope, f)
	})
}

// getSettings returns the settings that the daemon uses.
func (c *call) getSettings() error {
	if !c.conn.caller.Admin {
		return c.refuse(ckpt.Errorf(ckpt.CodeDenied, "only an administrator may read the settings of the daemon"))
	}
	if c.server.settings == nil {
		return ckpt.Errorf(ckpt.CodeNotFound, "this daemon does not show its settings")
	}
	return c.sendJSON(http.StatusOK, survey.Settings{Settings: c.server.settings()})
}

// noneMatch returns the tag in If-None-Match, "" for none. It returns the last tag of a
// list. * gives no tag, because the requested object always exists.
func (c *call) noneMatch() (string, error) {
	tags, err := c.tags("If-None-Match")
	if err != nil || len(tags) == 0 {
		return "", err
	}
	return tags[len(tags)-1], nil
}

// tags returns the ETags in a header. There are none if the header is absent or *.
func (c *call) tags(header string) (list []string, err error) {
	value, err := c.header(header)
	if err != nil || value == nil || strings.TrimSpace(*value) == "*" {
		return nil, err
	}
	for tag := range strings.SplitSeq(*value, ",") {
		text, found := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
		text, closed := strings.CutSuffix(text, `"`)
		if !found || !closed || strings.Contains(text, `"`) {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, `the header %s must be an ETag in quotation marks, or *`, header)
		}
		list = append(list, text)
	}
	return list, nil
}
