//go:build unix

package faulttest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// Verify runs the program's own check of the database (I5).
func (d *Daemon) Verify() {
	d.t.Helper()
	began := time.Now()
	out, err := d.command("verify", "--db", d.DB).CombinedOutput()
	if err != nil {
		d.t.Errorf("verify: %v\n%s", err, tail(string(out), 3000))
		return
	}
	d.t.Logf("%s in %v", strings.TrimSpace(string(out)), time.Since(began).Round(time.Millisecond))
}

// Audit runs an auditor's check: the violations that the sqlite3 command finds,
// without any of our code (I5).
func (d *Daemon) Audit() {
	d.t.Helper()
	if !haveSqlite() {
		d.t.Log("there is no sqlite3 command here: audit_violations was not asked")
		return
	}
	out, err := sqlite(d.DB, "-readonly", "SELECT * FROM audit_violations")
	switch {
	case err != nil:
		d.t.Errorf("audit_violations: %v", err)
	case out != "":
		d.t.Errorf("audit_violations has rows:\n%s", tail(out, 2000))
	}
}

func haveSqlite() bool {
	_, err := exec.LookPath("sqlite3")
	return err == nil
}

func needSqlite(t *testing.T) {
	t.Helper()
	if !haveSqlite() {
		t.Skip("there is no sqlite3 command here")
	}
}

// sqlite runs the sqlite3 command with options and one statement.
func sqlite(db string, args ...string) (string, error) {
	args, statement := args[:len(args)-1], args[len(args)-1]
	out, err := exec.Command("sqlite3", append(args, db, statement)...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("sqlite3 %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, nil
}

// RSS returns the memory of the process in bytes, and its peak.
func (d *Daemon) RSS() (now, peak int64) {
	d.t.Helper()
	f, err := os.Open("/proc/" + strconv.Itoa(d.PID()) + "/status")
	if err != nil {
		d.t.Skipf("the memory of a process cannot be read here: %v", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak
}

// inode returns a file's number. It only uses stat, because opening a database
// file beside SQLite could drop the locks of this process.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// keepAll sets a policy that keeps all checkpoints, so that an oracle can
// count.
func keepAll(t *testing.T, c *client.Client, agents ...string) {
	t.Helper()
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	for _, agent := range agents {
		if _, err := c.SetPolicy(context.Background(), agent, p); err != nil {
			t.Fatal(err)
		}
	}
}

// listAll reads all checkpoints of an agent without their states.
func listAll(c *client.Client, f ckpt.CheckpointFilter) ([]ckpt.Checkpoint, error) {
	var list []ckpt.Checkpoint
	f.Limit = ckpt.MaxLimit
	for {
		page, err := c.Checkpoints(context.Background(), f)
		if err != nil {
			return nil, err
		}
		list = append(list, page.Checkpoints...)
		if page.Next == "" {
			return list, nil
		}
		f.Before = string(page.Next)
	}
}

func sum(state []byte) string {
	h := sha256.Sum256(state)
	return hex.EncodeToString(h[:])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// slack returns how long something may take. The matrix requires the promised
// times, longer on a busy machine, or ten times as long if it runs with the race detector.
// go test runs on busy machines, so there only something that never ends fails.
func slack(d time.Duration) time.Duration {
	switch {
	case *matrix == "":
		return max(d, 3*time.Minute)
	case testenv.RaceDetector():
		return 10 * d
	}
	return patiently(d)
}

// patiently multiplies a time by how many programs want each processor.
func patiently(d time.Duration) time.Duration {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return d
	}
	load, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		return d
	}
	return time.Duration(float64(d) * max(1, 2*load/float64(runtime.NumCPU())))
}
