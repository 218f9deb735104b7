package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// benchCmd is what users measure on a disk of their own. Each measurement
// starts daemons of its own in a folder of its own on that disk; nobody's
// database is touched.
type benchCmd struct {
	Save    benchSaveCmd    `cmd:"" help:"Durable saves a second over the socket, beside a log that is written and flushed on the same disk."`
	Restore benchRestoreCmd `cmd:"" help:"Restoring over the socket: states of several sizes and ages."`
	History benchHistoryCmd `cmd:"" help:"States that grow over many saves: how small the database stays, and how fast saving and restoring."`
	Scale   benchScaleCmd   `cmd:"" help:"Up to a million checkpoints in the database: what gets slower, and how long a start takes."`
	Drift   benchDriftCmd   `cmd:"" help:"How often the drift detectors fire on recorded runs whose outcome is known."`
}

// benchFlags are those of every measurement.
type benchFlags struct {
	Dir  string `help:"A folder on the disk to measure. A folder for the measurement is made in it, and goes when it ends. Default: where your database is or would be." placeholder:"DIR"`
	Keep bool   `help:"Leave the folder of the measurement, to look into its databases."`
	Seed uint64 `default:"1" help:"Of the states, which are generated: English-like and program-like text that compresses as real text does. The same seed gives the same states. Default: ${default}."`
}

// benchHead begins the JSON of every measurement.
type benchHead struct {
	Bench    string    `json:"bench"`
	Version  string    `json:"version"`
	At       ckpt.Time `json:"at"`
	Dir      string    `json:"dir"`
	InMemory bool      `json:"in_memory"`
	Platform string    `json:"platform"`
	CPUs     int       `json:"cpus"`
	Seed     uint64    `json:"seed"`
	Seconds  float64   `json:"seconds"`
}

// bench is one measurement: its folder on the disk, and what it tells.
type bench struct {
	a       *app
	head    benchHead
	dir     string // made for this measurement
	keep    bool
	began   time.Time
	shown   *term.Progress
	daemons []*measuredDaemon // all that were started
}

// measure makes a measurement, which will take about so many bytes of disk, and
// leaves nothing behind.
func (a *app) measure(ctx context.Context, name string, f benchFlags, need int64, do func(*bench) error) error {
	b, err := a.openBench(name, f, need)
	if err != nil {
		return err
	}
	defer b.close()
	err = do(b)
	if ctx.Err() != nil { // Ctrl-C ends the daemons too: what broke because of that is not what happened
		return ctx.Err()
	}
	return err
}

func (a *app) openBench(name string, f benchFlags, need int64) (*bench, error) {
	where, err := a.benchFolder(f.Dir)
	if err != nil {
		return nil, err
	}
	if err := roomFor(where, need); err != nil {
		return nil, err
	}
	b := &bench{a: a, keep: f.Keep, began: time.Now(), shown: a.progress("bench " + name)}
	b.shown.Every = 10 * time.Second
	if b.dir, err = os.MkdirTemp(where, "ckptsidecar-bench-"); err != nil {
		return nil, fmt.Errorf("the folder to measure cannot be written, name another with --dir: %w", err)
	}
	memory, _ := osfile.FileSystem(where)
	b.head = benchHead{
		Bench: name, Version: programVersion(), At: ckpt.At(b.began), Dir: where, InMemory: memory,
		Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Seed: f.Seed,
	}
	return b, nil
}

// benchFolder is the folder that was named, or the nearest one to where the
// database would be.
func (a *app) benchFolder(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	config, err := new(serveCmd).settings(a)
	if err != nil {
		return "", fmt.Errorf("where your database would be is not clear, name a folder with --dir: %w", err)
	}
	dir := filepath.Dir(config.Database)
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || filepath.Dir(dir) == dir {
			return dir, nil
		}
		dir = filepath.Dir(dir)
	}
}

// roomFor refuses to fill somebody's disk. Where nobody can say how much is
// free, the disk itself will.
func roomFor(dir string, need int64) error {
	free, _, err := osfile.DiskSpace(dir)
	if err == nil && free < need+need/4 {
		return fmt.Errorf("this needs about %s, and %s has %s free: measure less, or name another disk with --dir", term.Bytes(need), dir, term.Bytes(free))
	}
	return nil
}

// close ends all daemons and removes all that was written.
func (b *bench) close() {
	b.shown.Done()
	for _, d := range b.daemons {
		_ = b.end(d)
	}
	if b.keep {
		b.a.tell("The databases are in %s.", b.dir)
		return
	}
	_ = os.RemoveAll(b.dir)
}

// report writes a finished measurement: as JSON, or as text for people.
func (b *bench) report(head *benchHead, all any, text func(*app)) error {
	*head = b.head
	head.Seconds = rounded(time.Since(b.began).Seconds())
	b.shown.Done()
	if b.a.cli.JSON {
		return term.WriteJSON(b.a.stdout, all)
	}
	text(b.a)
	b.a.tell("\n%s, %s with %s, %s; the clients share them with the daemon. Took %.0f s.",
		b.head.Dir, b.head.Platform, term.Count(b.head.CPUs, "CPU"), b.head.Version, head.Seconds)
	if b.head.InMemory {
		b.a.tell("%s", b.a.err.Yellow("This folder is in memory: nothing here has reached a disk. Name one with --dir."))
	}
	return nil
}

// parseSizes reads the sizes of states.
func parseSizes(flag string, texts []string, least, most int64) ([]int64, error) {
	var sizes []int64
	for _, text := range texts {
		size, err := daemon.ParseSize(text)
		if err != nil || int64(size) < least || int64(size) > most {
			return nil, cli.Usagef("%s has %q: say sizes like 64KiB, from %s to %s", flag, text, daemon.Size(least), daemon.Size(most))
		}
		sizes = append(sizes, int64(size))
	}
	if len(sizes) == 0 {
		return nil, cli.Usagef("%s names nothing to measure", flag)
	}
	return sizes, nil
}

// checkClients bounds how many clients there are at once.
func checkClients(clients []int) error {
	for _, n := range clients {
		if n < 1 || n > 512 {
			return cli.Usagef("--clients has %d: it is between 1 and 512", n)
		}
	}
	if len(clients) == 0 {
		return cli.Usagef("--clients names nobody")
	}
	return nil
}

// checkRounds bounds how often and how long is measured.
func checkRounds(rounds int, each time.Duration) error {
	if rounds < 1 || rounds > 1000 {
		return cli.Usagef("--rounds is %d: it is between 1 and 1000", rounds)
	}
	if each < 10*time.Millisecond || each > time.Hour {
		return cli.Usagef("--duration is %v: it is between 10ms and 1h", each)
	}
	return nil
}
