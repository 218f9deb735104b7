//go:build linux

package faulttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

func init() {
	addRow("F8", "power loss: ext4 is shut down under load", true, powerLosses)
	addRow("F11", "disk full, then room again", true, fullDisk)
}

// image is a separate file system, in a file or in memory.
type image struct {
	t         *testing.T
	file, dir string
}

// run runs a command of the system.
func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

func needRoot(t *testing.T, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may " + what)
	}
}

// newExt4 makes an ext4 file system and mounts it.
func newExt4(t *testing.T, size int64) *image {
	t.Helper()
	needRoot(t, "mount")
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("mkfs.ext4 is not installed (e2fsprogs)")
	}
	dir, err := os.MkdirTemp("", "ft")
	must(t, err)
	m := &image{t: t, file: filepath.Join(dir, "image"), dir: filepath.Join(dir, "mnt")}
	t.Cleanup(func() { _ = run("umount", m.dir); os.RemoveAll(dir) })
	must(t, os.Mkdir(m.dir, 0o755))
	must(t, os.WriteFile(m.file, nil, 0o600))
	must(t, os.Truncate(m.file, size))
	must(t, run("mkfs.ext4", "-q", "-F", m.file))
	if err := m.mount(); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	return m
}

func (m *image) mount() error { return run("mount", "-o", "loop", m.file, m.dir) }

// umount retries until the processes that still use the file system release it.
func (m *image) umount() error {
	var err error
	for range 100 {
		if err = run("umount", m.dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// goDown is EXT4_IOC_SHUTDOWN without a flush of the journal: from this call on nothing reaches the disk.
func (m *image) goDown() error {
	f, err := os.Open(m.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	const shutdown, noFlush = 0x8004587d, 2
	flag := uint32(noFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		return errno
	}
	return nil
}

// powerLosses is F8: a file system repeatedly loses everything that was not flushed, while clients continue to
// save.
func powerLosses(t *testing.T) {
	rounds := 20
	if isShort() {
		rounds = 3
	}
	losePower(t, rounds)
}

func losePower(t *testing.T, rounds int) {
	m := newExt4(t, 512<<20)
	d, random := NewDaemon(t), newRand(t, 0)
	d.DB = filepath.Join(m.dir, "data", "ckpt.db")
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 8)
	load.growing, load.most = true, 60<<10
	load.start(h)
	var slowest time.Duration
	for round := range rounds {
		time.Sleep(100*time.Millisecond + time.Duration(random.Int64N(int64(900*time.Millisecond))))
		d.stopBetweenCalls()
		must(t, m.goDown())
		if random.IntN(2) == 0 { // the daemon meets a disk that is gone, and must not acknowledge anything
			d.Signal(syscall.SIGCONT)
			time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
		}
		d.Kill()
		must(t, m.umount())
		must(t, m.mount())
		before := load.acked.Load()
		slowest = max(slowest, d.Start())
		load.goesOn(before, fmt.Sprintf("round %d", round))
	}
	load.finish()
	count(t, figures{rounds: rounds})
	note(t, "the slowest restart took %v until it was ready", slowest.Round(time.Millisecond))
	h.Check(t, d.Client, load.agents...)
	d.Audit()
	d.Stop()
	d.Verify()
}

// stopBetweenCalls stops every thread of the daemon outside the kernel. A flush that is in progress while ext4 is
// shut down can return success, which a disk without power never does.
func (d *Daemon) stopBetweenCalls() {
	d.t.Helper()
	d.Signal(syscall.SIGSTOP)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if time.Since(began) > startTime {
			d.t.Fatal("the daemon does not stop")
		}
		if d.stopped() {
			return
		}
	}
}

func (d *Daemon) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.PID()))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		_, state, _ := strings.Cut(string(text), ") ")
		if err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// fullDisk is F11 over the socket: if the disk has not one byte left, the daemon refuses saves and nothing else,
// also after a kill. It needs no restart when there is room again.
func fullDisk(t *testing.T) {
	m := newExt4(t, 64<<20)
	d, h := NewDaemon(t), NewHistory()
	d.DB = filepath.Join(m.dir, "data", "ckpt.db")
	d.Start()
	c, b := d.Client(), newBallast(t, filepath.Join(m.dir, "ballast"))
	keepAll(t, c, "agent-0")
	b.grow(20 << 20)
	saves := saveUntilFull(t, h, c)
	b.grow(64 << 20)
	if _, err := c.Status(context.Background()); err != nil {
		t.Errorf("status on a full disk: %v", err)
	}
	h.Check(t, d.Client, "agent-0")
	for _, saved := range saves {
		if _, err := c.State(context.Background(), saved.ID); err != nil {
			t.Errorf("a read on a full disk: %v", err)
		}
	}
	deleted := 0
	for i, saved := range saves {
		if i == len(saves)/2 {
			d.Kill()
			d.Start()
			c = d.Client()
		}
		if _, err := c.Delete(context.Background(), saved.ID); err != nil {
			t.Errorf("a delete on a full disk: %v", err)
			continue
		}
		deleted++
		b.grow(64 << 20) // another program takes the space that it has freed
	}
	note(t, "%d of %d deletes on the full disk succeeded, with a kill among them", deleted, len(saves))
	pid := d.PID()
	must(t, os.Remove(b.path))
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var err error
	if _, err = NewHistory().SaveUntilAnswered(ctx, c, newSave(t, "agent-1")); err != nil || d.PID() != pid || !d.Running() {
		t.Errorf("with room again: %v", err)
	}
	note(t, "with room again a save took %v; %d were refused", time.Since(began).Round(time.Millisecond), h.Sum().Unanswered)
	count(t, figures{rounds: 1})
	d.Audit()
	d.Stop()
	d.Verify()
}

// ballast is a file that takes space away from all others.
type ballast struct {
	t    *testing.T
	path string
}

func newBallast(t *testing.T, path string) *ballast {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o600))
	return &ballast{t, path}
}

// grow adds up to this many bytes, or all that are left.
func (b *ballast) grow(most int64) {
	b.t.Helper()
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_APPEND, 0)
	must(b.t, err)
	defer f.Close()
	for size := int64(1 << 20); size > 0 && most > 0; {
		n, err := f.Write(make([]byte, min(size, most)))
		if most -= int64(n); err != nil {
			size /= 2
		}
	}
	_ = f.Sync()
}

// saveUntilFull saves until a save is refused, and checks the refusal.
func saveUntilFull(t *testing.T, h *History, c *client.Client) (saves []*ckpt.Saved) {
	t.Helper()
	for n := 0; ; n++ {
		r := newSave(t, "agent-0")
		r.ContentType, r.State = "application/octet-stream", noise(uint64(n), 300_000)
		saved, err := h.Save(context.Background(), c, r)
		if err == nil {
			saves = append(saves, saved)
			continue
		}
		if e := ckpt.AsError(err); e.Code != ckpt.CodeStorageFull || e.OutcomeOrDefault() != ckpt.OutcomeNotSaved {
			t.Errorf("a full disk is answered as %v, %s", err, e.OutcomeOrDefault())
		}
		return saves
	}
}
