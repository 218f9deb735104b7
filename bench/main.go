package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/drivers"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

// options are the options of the command line.
type options struct {
	quick, json, offline     bool
	rounds, kept             int
	each, limit              time.Duration
	dir, cache, server, only string
	save, from               string
	markdown                 bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the cleanup
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "drive" { // a child of this program
		return drivers.Run(context.WithoutCancel(ctx), args[1:])
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.from != "" {
		report, err := readReport(o.from)
		return errors.Join(err, show(o, report))
	}
	if err := host.Check(); err != nil {
		return err
	}
	report, err := compare(ctx, o)
	return errors.Join(err, show(o, report))
}

func show(o *options, r *report) (err error) {
	if r == nil {
		return nil
	}
	if o.save != "" {
		var text bytes.Buffer
		if err = r.writeJSON(&text); err == nil {
			err = os.WriteFile(o.save, text.Bytes(), 0o644)
		}
	}
	switch {
	case o.json:
		err = errors.Join(err, r.writeJSON(os.Stdout))
	case o.markdown:
		r.writeMarkdown(os.Stdout)
	default:
		r.write(os.Stdout)
	}
	return err
}

func parse(args []string) (*options, error) {
	o := new(options)
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "about 3 minutes instead of 12, on an idle machine")
	f.BoolVar(&o.json, "json", false, "write the report as JSON")
	f.BoolVar(&o.markdown, "markdown", false, "write the tables as docs/PERFORMANCE.md has them")
	f.StringVar(&o.from, "from", "", "measure nothing: show a report that was saved")
	f.StringVar(&o.save, "save", "", "write it as JSON into a file too")
	f.IntVar(&o.rounds, "rounds", 0, "how many rounds there are (5, quick 3)")
	f.DurationVar(&o.each, "time", 0, "how long one turn counts (1.2s, quick 0.45s)")
	f.IntVar(&o.kept, "kept", 0, "how many states of a history are kept to see what they take on disk (1000, quick 250)")
	f.DurationVar(&o.limit, "limit", 0, "when to end with the rounds that are done (20m, quick 6m)")
	f.StringVar(&o.dir, "dir", "/var/tmp", "a folder on the disk to measure")
	f.StringVar(&o.cache, "cache", "dist/peers", "where downloaded and built systems are kept")
	f.StringVar(&o.server, "server", "dist/ckptsidecar", "the program of ckptsidecar")
	f.StringVar(&o.only, "only", "", "a list of peers, instead of all: append,redis,postgres,etcd,langgraph,dbos,file")
	f.BoolVar(&o.offline, "offline", false, "download and install nothing")
	if err := f.Parse(args); err != nil {
		return nil, errors.Join(flag.ErrHelp, err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is no option; see -help", f.Args())
	}
	return o, o.fill()
}

// fill sets the options that the user did not give.
func (o *options) fill() error {
	rounds, kept, each, limit := 5, 1000, 1200*time.Millisecond, 20*time.Minute
	if o.quick {
		rounds, kept, each, limit = 3, 250, 450*time.Millisecond, 6*time.Minute
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.kept == 0 {
		o.kept = kept
	}
	if o.each == 0 {
		o.each = each
	}
	if o.limit == 0 {
		o.limit = limit
	}
	if o.rounds < 1 || o.kept < 2 || o.each < 10*time.Millisecond || o.limit < time.Second {
		return fmt.Errorf("-rounds %d -kept %d -time %s -limit %s: say at least 1, 2, 10ms and 1s", o.rounds, o.kept, o.each, o.limit)
	}
	return nil
}

// wants says whether a peer should be measured.
func (o *options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	for one := range strings.SplitSeq(o.only, ",") {
		if strings.TrimSpace(one) == name {
			return true
		}
	}
	return false
}
