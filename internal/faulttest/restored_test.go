//go:build linux

package faulttest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func init() {
	f32Store := elsewhere(map[string]string{"db": "TestInterruptedRestore.*"}, 1)
	addRow("F32", "killed at each call of restore-backup", true, func(t *testing.T) {
		t.Run("the store", f32Store)
		t.Run("the command", killedRestores)
	})
}

// restores is a folder with a backup and a database that has one save more. That save is only in the write-ahead
// log, as after a crash. Each point gets a copy of the folder.
type restores struct {
	t              *testing.T
	strace         string
	from           string // the folder
	both, newer    *ckpt.Saved
	finds, refuses int // what the daemons did that were started after a kill
	missed         int // points that the command did not reach
}

const restoreFolder = "data"

func newRestores(t *testing.T) *restores {
	t.Helper()
	x := &restores{t: t, strace: needStrace(t), from: filepath.Join(t.TempDir(), restoreFolder)}
	d := NewDaemon(t, "--set", "backup.interval=0s")
	d.DB = filepath.Join(x.from, "ckpt.db")
	d.Start()
	save := func() *ckpt.Saved {
		saved, err := d.Client().Save(t.Context(), newSave(t, "agent-0"))
		must(t, err)
		return saved
	}
	x.both = save()
	backup := filepath.Join(x.from, "backup")
	if out, err := d.command("backup", "--db", d.DB, backup).CombinedOutput(); err != nil {
		t.Fatalf("backup: %v: %s", err, out)
	}
	_, err := sqlite(d.DB, "PRAGMA wal_checkpoint(PASSIVE)")
	must(t, err)
	x.newer = save()
	d.Kill()
	return x
}

// copied returns a daemon with a copy of the folder, including its database.
func (x *restores) copied(from string) *Daemon {
	d := NewDaemon(x.t, "--set", "backup.interval=0s")
	d.DB = filepath.Join(d.Dir, restoreFolder, "ckpt.db")
	must(x.t, run("cp", "-a", from, filepath.Dir(d.DB)))
	return d
}

// restore is the restore command, run in the daemon's folder.
func (d *Daemon) restore() *exec.Cmd {
	return d.command("restore-backup", "--db", d.DB, filepath.Join(filepath.Dir(d.DB), "backup"))
}

// restoreKilled runs the command and kills it after this many of its calls that write in its folder; 0 means never.
// It returns the output and the calls. Each call is delayed before it starts, so that the process is dead by then.
func (x *restores) restoreKilled(d *Daemon, when int) (said string, calls []string, err error) {
	d.Wrap = []string{x.strace, "-f", "-qq", "-y", "-s", "0", "-o", "|cat >&3", "-e", "trace=" + writing, "-e", "inject=" + writing + ":delay_enter=5000"}
	cmd := d.restore()
	d.Wrap = nil
	trace, to, err := os.Pipe()
	must(x.t, err)
	defer trace.Close()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &out, []*os.File{to}
	err = cmd.Start()
	to.Close()
	must(x.t, err)
	for lines := bufio.NewScanner(trace); lines.Scan(); {
		m := tracedLine.FindStringSubmatch(lines.Text())
		if m == nil || !strings.Contains(m[3], filepath.Dir(d.DB)) || strings.Contains(m[3], "O_RDONLY") || strings.Contains(m[3], "resumed>") {
			continue
		}
		if calls = append(calls, m[2]); len(calls) == when {
			thread, _ := strconv.Atoi(m[1])
			_ = syscall.Kill(thread, syscall.SIGKILL) // if it has ended by itself, this point was not reached
		}
	}
	return out.String(), calls, cmd.Wait()
}

// killedRestores is F32: the command is killed after each of its calls that write. A daemon that starts then finds
// the old database or the backup, or it refuses to start and says why. Running the same command again finishes the
// restore. The replaced database is kept under a name that one of the two commands has printed.
func killedRestores(t *testing.T) {
	needSqlite(t)
	x := newRestores(t)
	said, calls, err := x.restoreKilled(x.copied(x.from), 0)
	if err != nil || len(calls) < 50 {
		t.Fatalf("an undisturbed restore: %v, %d calls\n%s", err, len(calls), said)
	}
	note(t, "a restore makes %d calls that write", len(calls))
	step := 1
	if isShort() {
		step = len(calls) / 8
	}
	tried := 0
	for n := 1 + newRand(t, 0).IntN(step); n <= len(calls); n += step {
		x.kill(n)
		tried++
	}
	note(t, "killed at %d of %d points; then a daemon served %d times and refused %d times", tried-x.missed, tried, x.finds, x.refuses)
	if x.missed > max(2, tried/10) {
		t.Errorf("%d of %d points were not met", x.missed, tried)
	}
	if !isShort() && (x.finds == 0 || x.refuses == 0) {
		t.Error("no point was between the old database and the backup, or none beside it")
	}
}

// kill stops the command after this many calls, and checks what is there.
func (x *restores) kill(n int) {
	t := x.t
	d := x.copied(x.from)
	said, calls, err := x.restoreKilled(d, n)
	if err == nil {
		x.missed++
		return
	}
	what := fmt.Sprintf("killed after call %d (%s)", n, calls[len(calls)-1])
	x.between(d, what)
	again, err := d.restore().CombinedOutput()
	if err != nil {
		t.Errorf("%s: the same command again: %v\n%s", what, err, again)
		return
	}
	said += string(again)
	kept := ""
	for _, m := range regexp.MustCompile(`kept (?:as )?(\S+/ckpt\.db\.before-[^\s;]+)`).FindAllStringSubmatch(said, -1) {
		if x.has(m[1], x.newer) && x.has(m[1], x.both) {
			kept = m[1]
		}
	}
	if kept == "" {
		t.Errorf("%s: no name of what was there is printed:\n%s", what, said)
	}
	if !x.has(d.DB, x.both) || x.has(d.DB, x.newer) {
		t.Errorf("%s: the database is not the backup in the end", what)
	}
	rows, err := sqlite(d.DB, "-readonly", `SELECT count(*) FROM audit_log WHERE action = 'restore_backup'`)
	if err != nil || rows != "1" {
		t.Errorf("%s: %s rows say that it was restored: %v", what, rows, err)
	}
	for _, pattern := range []string{"/*.restoring", "/.restore-*"} {
		if left, _ := filepath.Glob(filepath.Dir(d.DB) + pattern); len(left) > 0 {
			t.Errorf("%s: %v is left", what, left)
		}
	}
	d.Verify()
	count(t, figures{points: 1, acked: 2})
	d.cleanUp()
}

// between starts a daemon on a copy of what the command left.
func (x *restores) between(left *Daemon, what string) {
	t := x.t
	d := x.copied(filepath.Dir(left.DB))
	defer d.cleanUp()
	if text, err := os.ReadFile(d.DB + ".restoring"); err == nil { // this file contains paths
		must(t, os.WriteFile(d.DB+".restoring", bytes.ReplaceAll(text, []byte(left.Dir), []byte(d.Dir)), 0o600))
	}
	if _, err := d.start(); err != nil {
		x.refuses++
		if d.Running() || d.exitCode() != exitOperator || !strings.Contains(d.Log(), "restore-backup") {
			t.Errorf("%s: the daemon does not say why it does not start: %v", what, err)
		}
		return
	}
	x.finds++
	rows, err := sqlite(d.DB, "-readonly", `SELECT count(*) FROM audit_log WHERE action = 'restore_backup'`)
	if err != nil || !x.has(d.DB, x.both) || x.has(d.DB, x.newer) == (rows == "1") {
		t.Errorf("%s: what is served is neither the old database nor the backup: %v", what, err)
	}
	d.Stop()
}

// has reports whether a database that no process writes contains a save.
func (x *restores) has(path string, saved *ckpt.Saved) bool {
	out, err := exec.Command("sqlite3", "-readonly", path, "SELECT count(*) FROM audit_checkpoints WHERE id = '"+saved.ID+"'").CombinedOutput()
	if err != nil {
		x.t.Errorf("%s: %v: %s", path, err, out)
	}
	return strings.TrimSpace(string(out)) == "1"
}
