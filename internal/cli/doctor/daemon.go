package doctor

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"runtime"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

func lookProgram(_ context.Context, p *patient) []finding {
	mine := p.app.Version
	if p.status != nil && p.status.Version != mine {
		return []finding{warn("restart the daemon, or use the program that belongs to it",
			"this program is %s, the daemon is %s", mine, p.status.Version)}
	}
	return []finding{ok("%s, SQLite %s, %s, %s/%s", mine, daemon.SQLiteVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)}
}

func lookIdentity(_ context.Context, p *patient) []finding {
	who := "an unknown user"
	if u, err := user.Current(); err == nil {
		who = fmt.Sprintf("%s (%s)", u.Username, u.Uid)
	}
	if err := daemon.CheckIdentityMap(); err != nil {
		return []finding{warn("fine for a daemon of your own; one for several users refuses to start here", "you are %s, but %v", who, err)}
	}
	return []finding{ok("you are %s; the kernel tells users apart", who)}
}

func lookDaemon(_ context.Context, p *patient) []finding {
	if p.status == nil {
		return []finding{unanswered(p.failed)}
	}
	found := []finding{ok("pid %d is %s, started %s", p.status.PID, p.status.State, term.Ago(p.status.Now.Time, p.status.StartedAt.Time))}
	if p.status.State != "ready" {
		found[0] = fail("do what the next lines say; the daemon's log says more", "pid %d is %s", p.status.PID, p.status.State)
	}
	for _, problem := range p.status.Problems {
		found = append(found, warn("", "%s", problem))
	}
	return append(found, lookSpans(&p.status.OTLP)...)
}

// unanswered returns the finding for a daemon that has not answered.
func unanswered(err error) finding {
	var silent *cli.SilentError
	var answer *ckpt.Error
	switch {
	case errors.As(err, &silent):
		return fail(silent.Do(), "%s", silent.What())
	case daemon.Absent(err):
		return fail("start one: ckptsidecar serve", "%s", cli.MessageOf(err))
	case errors.As(err, &answer):
		return fail("read its log", "%s", cli.MessageOf(err))
	}
	return fail("", "%s", cli.MessageOf(err)) // the message says what to do
}

// lookSpans reports what happened to OpenTelemetry spans, because exporters fail
// silently.
func lookSpans(o *ckpt.OTLPStatus) []finding {
	if !o.Enabled {
		return nil
	}
	var found []finding
	if o.Closed > 0 {
		found = append(found, warn("if exporters report resets, find the program that opens connections to the port and sends no token: ss -tnp",
			"%s for OpenTelemetry's spans were closed since the start: more than an owner may have, or without a token in 5 s",
			term.Count(o.Closed, "connection")))
	}
	n := &o.Spans
	text := fmt.Sprintf("OpenTelemetry's spans since the start: %d steps, %d of models and agents, "+
		"%d without meaning here, %d sent twice, %d late, %d refused",
		n.Step, n.Usage, n.Ignored, n.Duplicate, n.Late, n.Refused)
	switch {
	case n.Refused > 0:
		return append(found, warn("read the log of the exporter: it received the reason", "%s", text))
	case n.Step+n.Usage+n.Ignored+n.Duplicate == 0:
		return append(found, warn("set what `ckptsidecar otlp env` prints where the agent runs", "%s", text))
	}
	return append(found, ok("%s", text))
}

func lookClock(_ context.Context, p *patient) []finding {
	now := time.Now()
	if now.Year() < 2025 || now.Year() > 2100 {
		return []finding{fail("set the clock, and keep it right with NTP: checkpoints go by age",
			"the clock says %s", now.Format(time.DateTime))}
	}
	if why := clockUntrusted(); why != "" {
		return []finding{warn("have it synchronized, with systemd-timesyncd or chrony: checkpoints go by age",
			"the clock reads %s, but %s", now.Format(time.DateTime), why)}
	}
	if p.status == nil {
		return []finding{ok("the clock says %s", now.Format(time.DateTime))}
	}
	found := []finding{ok("the clock says %s, as the daemon's does", now.Format(time.DateTime))}
	if apart := now.Sub(p.status.Now.Time).Abs(); apart > 5*time.Second {
		found[0] = warn("check whether the daemon is overloaded, or the clock was just set",
			"the clock and the daemon's are %s apart", apart.Round(time.Second))
	}
	return found
}

func lookJournal(_ context.Context, p *patient) []finding {
	if p.status == nil {
		return []finding{skipped("no daemon answers")}
	}
	const large = 256 << 20
	d := &p.status.Database
	switch {
	case d.WALFailures > 0:
		return []finding{fail("look at the disk and at the daemon's log",
			"the write-ahead log could not be copied into the database, %s in a row", term.Count(d.WALFailures, "time"))}
	case d.WALPending > large:
		return []finding{warn("find the program that keeps the database open, such as a forgotten sqlite3, and end it",
			"%s wait in the write-ahead log", term.Bytes(d.WALPending))}
	case d.Hidden():
		return []finding{skipped("only an administrator may see this")}
	}
	return []finding{ok("%s, %s", term.Bytes(d.WALBytes), view.CopiedText(p.status))}
}

func lookRetention(_ context.Context, p *patient) []finding {
	if p.status == nil {
		return []finding{skipped("no daemon answers")}
	}
	w, now := &p.status.Worker, p.status.Now.Time
	switch {
	case w.LastError != "":
		return []finding{warn("it tries again by itself; the daemon's log says more", "the last run failed: %s", w.LastError)}
	case w.LastRun.IsZero() && now.Sub(p.status.StartedAt.Time) > 15*time.Minute, !w.LastRun.IsZero() && now.Sub(w.LastRun.Time) > 25*time.Hour:
		return []finding{warn("restart the daemon and look at its log", "it has not run since %s", term.Moment(w.LastRun))}
	case w.GuardedUntil.After(now):
		return []finding{ok("last run %s; retention by age is paused until %s, because the daemon has just started or the clock jumped",
			term.Ago(now, w.LastRun.Time), term.Moment(w.GuardedUntil))}
	}
	return []finding{ok("last run %s, %s removed by age or budget since the start", term.Ago(now, w.LastRun.Time), term.Count(w.Removed, "checkpoint"))}
}
