package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type eventsCmd struct {
	List   eventsListCmd   `cmd:"" default:"withargs" help:"Show a run's journal, or the events of all your runs, oldest first."`
	Append eventsAppendCmd `cmd:"" help:"Add to a run's journal."`
}

type eventsListCmd struct {
	Agent  string `arg:"" optional:"" help:"The agent's name. Without it the events of all your runs, in the order in which they came."`
	InRun  string `name:"run" help:"The run. Default: under exec its run, else main, else the one that changed last." placeholder:"NAME"`
	Follow bool   `short:"f" help:"Follow new events, also across restarts of the daemon, until Ctrl-C."`
	After  int64  `help:"Start after this sequence number. Without an agent: after the event with this n, as in --json." placeholder:"N"`
	Limit  int    `short:"n" help:"How many at most. Default: all." placeholder:"N"`
}

// Run writes a line for each event; with --json that line is JSON.
func (c *eventsListCmd) Run(ctx context.Context, a *app) error {
	if c.Agent == "" && c.InRun != "" {
		return cli.Usagef("--run needs an agent: name the agent too")
	}
	if c.After < 0 || c.Limit < 0 {
		return cli.Usagef("--after and --limit must be 0 or more")
	}
	var ref ckpt.RunRef
	var err error
	if c.Agent != "" {
		if ref, err = a.RefToRead(ctx, c.Agent, c.InRun); err != nil {
			return err
		}
	}
	shown := 0
	count := func(err error) error {
		if shown++; err == nil && shown == c.Limit {
			return errEnough
		}
		return err
	}
	show := func(e ckpt.Event) error { return count(a.writeEvent("", &e, e)) }
	showAny := func(e ckpt.OwnerEvent) error { return count(a.writeEvent(e.Agent+"/"+e.Run, &e.Event, e)) }
	switch {
	case c.Agent == "" && c.Follow:
		err = a.Client().FollowAll(ctx, c.After, showAny)
	case c.Agent == "":
		err = c.listAll(ctx, a, showAny)
	case c.Follow:
		err = a.Client().Follow(ctx, ref, c.After, show)
	default:
		err = c.list(ctx, a, ref, show)
	}
	switch {
	case errors.Is(err, errEnough):
		return nil
	case ctx.Err() != nil: // Ctrl-C is the normal end of following
		return nil
	case err == nil && shown == 0 && !a.JSON && c.Agent == "":
		a.Tell("no run has appended an event yet")
	case err == nil && shown == 0 && !a.JSON:
		a.Tell("%s has appended no event yet: ckptsidecar log %[1]s tells what else happened", c.Agent)
	}
	return err
}

var errEnough = errors.New("enough events were shown")

func (c *eventsListCmd) list(ctx context.Context, a *app, ref ckpt.RunRef, show func(ckpt.Event) error) error {
	return eachEvent(c.After, show, func(after int64) ([]ckpt.Event, *int64, error) {
		page, err := a.Client().Events(ctx, ref, after, ckpt.MaxLimit)
		if err != nil {
			return nil, nil, err
		}
		return page.Events, page.Next, nil
	})
}

func (c *eventsListCmd) listAll(ctx context.Context, a *app, show func(ckpt.OwnerEvent) error) error {
	return eachEvent(c.After, show, func(after int64) ([]ckpt.OwnerEvent, *int64, error) {
		page, err := a.Client().EventsOf(ctx, after, ckpt.MaxLimit)
		if err != nil {
			return nil, nil, err
		}
		return page.Events, page.Next, nil
	})
}

// eachEvent shows the events of all pages after a number.
func eachEvent[Event any](after int64, show func(Event) error, page func(after int64) ([]Event, *int64, error)) error {
	return cli.EachPage(after, func(after int64) (next int64, more bool, err error) {
		events, to, err := page(after)
		if err != nil {
			return 0, false, err
		}
		for _, e := range events {
			if err := show(e); err != nil {
				return 0, false, err
			}
		}
		if to == nil {
			return 0, false, nil
		}
		return *to, true, nil
	})
}

// writeEvent writes one line, so that followers can read line by line. of is the run of the event, or "" if the line
// does not name one; whole is the value that --json prints.
func (a *app) writeEvent(of string, e *ckpt.Event, whole any) error {
	var line bytes.Buffer
	if a.Shaped() {
		return a.WriteJSON(whole)
	}
	if a.JSON {
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(whole); err != nil {
			return err
		}
		_, err := a.Data().Write(line.Bytes())
		return err
	}
	if of != "" {
		term.Printf(&line, "%s  ", a.Out.Bold(of))
	}
	term.Printf(&line, "%6d  %s  %s  %s\n", e.Seq, term.Moment(e.At), a.Out.Cyan(e.Type), oneLine(e.Payload))
	_, err := a.Stdout.Write(line.Bytes())
	return err
}

func oneLine(value ckpt.JSON) string {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return b.String()
}

type eventsAppendCmd struct {
	Agent   string `arg:"" help:"The agent's name."`
	Type    string `arg:"" optional:"" help:"What happened. Default: read events from standard input, one {\"type\", \"payload\"} a line."`
	Payload string `arg:"" optional:"" help:"More about it, as JSON."`
	InRun   string `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Epoch   *int64 `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
}

// Run prints the sequence number of the last event on standard output.
func (c *eventsAppendCmd) Run(ctx context.Context, a *app) error {
	ref := a.Ref(c.Agent, c.InRun, c.Epoch)
	if err := cli.Checked(ref.Check()); err != nil {
		return err
	}
	events, err := c.events(ctx, a)
	if err != nil {
		return err
	}
	var done ckpt.Appended
	for len(events) > 0 {
		batch := events[:min(len(events), ckpt.MaxEvents)]
		if err := cli.Checked(wellformed.Events(batch)); err != nil {
			return err
		}
		appended, _, err := a.Client().Append(ctx, ref, batch, "")
		if err != nil {
			return err
		}
		if done.First == 0 {
			done.First = appended.First
		}
		done.Last, events = appended.Last, events[len(batch):]
	}
	if a.JSON {
		return a.WriteJSON(done)
	}
	term.Println(a.Stdout, done.Last)
	return nil
}

func (c *eventsAppendCmd) events(ctx context.Context, a *app) ([]ckpt.NewEvent, error) {
	if c.Type != "" {
		return []ckpt.NewEvent{{Type: c.Type, Payload: jsonOf(c.Payload)}}, nil
	}
	text, err := a.Read(ctx, "-")
	if err != nil {
		return nil, err
	}
	var events []ckpt.NewEvent
	lines := bufio.NewReader(bytes.NewReader(text))
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e ckpt.NewEvent
			if err := jsontext.Decode(line, &e); err != nil {
				return nil, cli.Usagef("line %d is not an event: %v", n, err)
			}
			events = append(events, e)
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	if len(events) == 0 {
		return nil, cli.Usagef("standard input has no events: write one JSON object per line")
	}
	return events, nil
}
