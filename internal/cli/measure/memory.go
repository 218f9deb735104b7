package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// memoryReport is the physical memory of the daemon's process (resident set, or working
// set).
type memoryReport struct {
	Idle       int64   `json:"idle_bytes"`       // after a start, with nothing to do
	Clients    int     `json:"clients"`          // this many clients saved at once,
	Size       int64   `json:"size"`             // states of this size
	Saves      float64 `json:"saves_per_second"` // this many per second
	Peak       int64   `json:"peak_bytes"`       // the maximum during that time
	After      int64   `json:"after_bytes"`      // some time after the last save
	LargeSize  int64   `json:"large_size"`       // one state of this size,
	LargeSave  float64 `json:"large_save_ms"`    // saved in this time
	LargeFetch float64 `json:"large_restore_ms"` // and restored in this
	LargePeak  int64   `json:"large_peak_bytes"` // and the maximum during that time
}

// memoryFlags say what happens while the memory is measured.
type memoryFlags struct {
	Clients  int           `default:"64" help:"For --memory: how many clients save at once. Default: ${default}."`
	Size     string        `default:"2MiB" help:"For --memory: states of this size. Default: ${default}."`
	Large    string        `default:"64MiB" help:"For --memory: also one state of this size. Default: ${default}."`
	Duration time.Duration `default:"5s" help:"For --memory: how long the clients save. Default: ${default}."`
}

// plan checks the flags.
func (f *memoryFlags) plan() (*memoryReport, error) {
	sizes, err := ParseSizes("--memory-size and --memory-large", []string{f.Size, f.Large}, LeastState, 64<<20)
	if err != nil {
		return nil, err
	}
	if f.Clients < 1 || f.Clients > 512 || int64(f.Clients)*sizes[0] > 1<<30 {
		return nil, cli.Usagef("--memory-clients is %d; it must be between 1 and 512, with states of at most 1 GiB together", f.Clients)
	}
	return &memoryReport{Clients: f.Clients, Size: sizes[0], LargeSize: sizes[1]}, CheckRounds(1, f.Duration)
}

// memory measures two daemons: one with many clients, one with one large state.
func (b *Bench) memory(ctx context.Context, f memoryFlags, m *memoryReport) error {
	if err := b.memoryOfMany(ctx, f.Duration, m); err != nil {
		return err
	}
	return b.memoryOfLarge(ctx, m)
}

func (b *Bench) memoryOfMany(ctx context.Context, during time.Duration, m *memoryReport) error {
	d, err := b.Start(ctx, "memory")
	if err != nil {
		return err
	}
	b.Shown.Say("memory: idle")
	if err := periodic.Wait(ctx, during); err != nil {
		return err
	}
	if m.Idle, _, err = processMemory(d.Cmd.Process.Pid); err != nil {
		return err
	}
	b.Shown.Say("memory: %s with states of %s", term.Count(m.Clients, "client"), term.Bytes(m.Size))
	pool := NewStates(b.head.Seed, m.Size)
	m.Peak, err = peakMemory(d.Cmd.Process.Pid, func() error {
		f, _, err := b.saveLoad(ctx, d, Load{Clients: m.Clients, During: during}, pool, 1)
		m.Saves = f.PerSecond
		return err
	})
	if err != nil {
		return err
	}
	b.Shown.Say("memory: afterwards")
	if err := periodic.Wait(ctx, 2*during); err != nil {
		return err
	}
	if m.After, _, err = processMemory(d.Cmd.Process.Pid); err != nil {
		return err
	}
	return b.End(d)
}

func (b *Bench) memoryOfLarge(ctx context.Context, m *memoryReport) error {
	d, err := b.Start(ctx, "large")
	if err != nil {
		return err
	}
	b.Shown.Say("memory: one state of %s", term.Bytes(m.LargeSize))
	state := NewMaterial(b.head.Seed).State(m.LargeSize)
	m.LargePeak, err = peakMemory(d.Cmd.Process.Pid, func() error { return b.saveLarge(ctx, d, state, m) })
	if err != nil {
		return err
	}
	return b.End(d)
}

func (b *Bench) saveLarge(ctx context.Context, d *Daemon, state []byte, m *memoryReport) error {
	client := d.ClientOf(0)
	began := time.Now()
	if _, err := SaveMain(ctx, client, state); err != nil {
		return fmt.Errorf("saving a state of %s: %w", term.Bytes(m.LargeSize), err)
	}
	m.LargeSave = Rounded(Milliseconds(time.Since(began)))
	began = time.Now()
	got, _, err := client.Restore(ctx, ckpt.RestoreRequest{Agent: Agent, Reason: "bench"})
	if err != nil {
		return fmt.Errorf("restoring a state of %s: %w", term.Bytes(m.LargeSize), err)
	}
	m.LargeFetch = Rounded(Milliseconds(time.Since(began)))
	if !bytes.Equal(got.State, state) {
		return fmt.Errorf("the restored state of %s differs from the saved one", term.Bytes(m.LargeSize))
	}
	return nil
}

// Agent is the name of the agent of measurements that need only one.
const Agent = "bench"

// peakMemory returns the most memory that a process uses during do: the maximum of
// samples every few milliseconds, or the maximum that the system itself has recorded.
func peakMemory(pid int, do func() error) (int64, error) {
	var most int64
	var watching error
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var now, highest int64
			now, highest, watching = processMemory(pid)
			most = max(most, now, highest)
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	err := do()
	close(stop)
	<-stopped
	return most, errors.Join(err, watching)
}

func (m *memoryReport) text(a *Env) {
	fmt.Fprintln(a.Stdout, "\n"+a.Out.Bold("memory of the daemon"))
	var p term.Pairs
	p.Add("idle", term.Bytes(m.Idle))
	p.Add(fmt.Sprintf("%s saving states of %s", term.Count(m.Clients, "client"), term.Bytes(m.Size)),
		fmt.Sprintf("%s at most (%s saves/s), %s a while later", term.Bytes(m.Peak), Rate(m.Saves), term.Bytes(m.After)))
	p.Add(fmt.Sprintf("one state of %s", term.Bytes(m.LargeSize)),
		fmt.Sprintf("%s at most; saved in %s, restored in %s", term.Bytes(m.LargePeak), term.Millis(m.LargeSave), term.Millis(m.LargeFetch)))
	p.Write(a.Stdout, a.Out)
}

// SaveMain saves a state to the main run of the one agent.
func SaveMain(ctx context.Context, client *client.Client, state []byte) (*ckpt.Saved, error) {
	return client.Save(ctx, &ckpt.SaveRequest{Agent: Agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state})
}
