package measure

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// Env is what a measurement needs from the program that runs it.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Out, Err       *term.Style // the styles of stdout and stderr
	JSON           bool        // write JSON instead of text for people
	Version        string
	Where          func() (string, error)                                         // the folder to measure if --dir names none
	Start          func(ctx context.Context, dir string) (*program.Daemon, error) // starts a daemon with its database in a folder
}

// Tell writes a message for the person, in addition to the result.
func (a *Env) Tell(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) }

// Progress shows the progress of a measurement.
func (a *Env) Progress(what string) *term.Progress {
	return term.NewProgress(a.Stderr, a.Err, what)
}

// folder returns the folder to measure.
func (a *Env) folder(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	return a.Where()
}

// Flags are the flags of every measurement.
type Flags struct {
	Dir  string `help:"A folder on the disk to measure. The measurement uses a temporary folder in it. Default: ${disk}." placeholder:"DIR"`
	Keep bool   `help:"Keep the temporary folder with its databases."`
	Seed uint64 `default:"1" help:"Generate the states, text and code that compress like real ones, from this seed. Default: ${default}."`
}

// Head is the beginning of the JSON of every measurement.
type Head struct {
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

// Bench is one measurement: its folder on the disk, and its output.
type Bench struct {
	a       *Env
	head    Head
	Dir     string // created for this measurement
	keep    bool
	Began   time.Time
	Shown   *term.Progress
	daemons []*Daemon // all that were started
}

// Measure runs a measurement that needs about this many bytes of disk, and removes its
// files afterwards.
func (a *Env) Measure(ctx context.Context, name string, f Flags, need int64, do func(*Bench) error) error {
	ctx, stop := term.UntilUnread(ctx)
	defer stop()
	b, err := a.openBench(name, f, need)
	if err != nil {
		return err
	}
	defer b.close()
	err = do(b)
	if ctx.Err() != nil { // Ctrl-C also ends the daemons: errors that follow from that are not the cause
		return ctx.Err()
	}
	return err
}

func (a *Env) openBench(name string, f Flags, need int64) (*Bench, error) {
	where, err := a.folder(f.Dir)
	if err != nil {
		return nil, err
	}
	if err := roomFor(where, need); err != nil {
		return nil, err
	}
	b := &Bench{a: a, keep: f.Keep, Began: time.Now(), Shown: a.Progress("bench " + name)}
	b.Shown.Every = 10 * time.Second
	if b.Dir, err = os.MkdirTemp(where, "ckptsidecar-bench-"); err != nil {
		return nil, fmt.Errorf("the folder to measure is not writable: name another with --dir: %w", err)
	}
	memory, _ := osfile.FileSystem(where)
	b.head = Head{
		Bench: name, Version: a.Version, At: ckpt.At(b.Began), Dir: where, InMemory: memory,
		Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Seed: f.Seed,
	}
	return b, nil
}

// roomFor refuses to fill a user's disk. If the free space is unknown, the measurement
// runs until the disk itself reports an error.
func roomFor(dir string, need int64) error {
	free, _, err := osfile.DiskSpace(dir)
	if err == nil && free < need+need/4 {
		return fmt.Errorf("the measurement needs about %s, and %s has %s free: measure less, or name another disk with --dir",
			term.Bytes(need), dir, term.Bytes(free))
	}
	return nil
}

// close ends all daemons and removes all written files.
func (b *Bench) close() {
	b.Shown.Done()
	for _, d := range b.daemons {
		_ = b.End(d)
	}
	if b.keep {
		b.a.Tell("The databases are in %s.", b.Dir)
		return
	}
	_ = os.RemoveAll(b.Dir)
}

// Report writes a finished measurement: as JSON, or as text for people.
func (b *Bench) Report(head *Head, all any, text func(*Env)) error {
	*head = b.head
	head.Seconds = Rounded(time.Since(b.Began).Seconds())
	b.Shown.Done()
	if b.a.JSON {
		return term.WriteJSON(b.a.Stdout, all)
	}
	text(b.a)
	b.a.Tell("\n%s, %s with %s, %s; the clients share them with the daemon. Took %.0f s.",
		b.head.Dir, b.head.Platform, term.Count(b.head.CPUs, "CPU"), b.head.Version, head.Seconds)
	if b.head.InMemory {
		b.a.Tell("%s", b.a.Err.Yellow("This folder is in memory, so nothing was written to a disk. Name a folder on a disk with --dir."))
	}
	return nil
}

// ParseSizes reads the sizes of states.
func ParseSizes(flag string, texts []string, least, most int64) ([]int64, error) {
	var sizes []int64
	for _, text := range texts {
		size, err := daemon.ParseSize(text)
		if err != nil || int64(size) < least || int64(size) > most {
			return nil, cli.Usagef("%s has %q: write sizes like 64KiB, from %s to %s", flag, text, daemon.Size(least), daemon.Size(most))
		}
		sizes = append(sizes, int64(size))
	}
	if len(sizes) == 0 {
		return nil, cli.Usagef("%s is empty: name something to measure", flag)
	}
	return sizes, nil
}

// CheckClients limits the number of simultaneous clients.
func CheckClients(clients []int) error {
	for _, n := range clients {
		if n < 1 || n > 512 {
			return cli.Usagef("--clients must be between 1 and 512; got %d", n)
		}
	}
	if len(clients) == 0 {
		return cli.Usagef("--clients is empty: give at least one number")
	}
	return nil
}

// CheckRounds limits the number and the length of the rounds.
func CheckRounds(rounds int, each time.Duration) error {
	if rounds < 1 || rounds > 1000 {
		return cli.Usagef("--rounds must be between 1 and 1000; got %d", rounds)
	}
	if each < 10*time.Millisecond || each > time.Hour {
		return cli.Usagef("--duration must be between 10ms and 1h; got %v", each)
	}
	return nil
}
