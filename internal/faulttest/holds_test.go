//go:build linux

package faulttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func init() {
	seconds := func(short, long int) time.Duration {
		if isShort() {
			return time.Duration(short) * time.Second
		}
		return time.Duration(long) * time.Second
	}
	addRow("F15", "the CLI holds the write lock", true, func(t *testing.T) {
		t.Run("3 s", TestLockedDatabase)
		t.Run("long", func(t *testing.T) { lockedLong(t, seconds(13, 60)) })
	})
	addRow("F16", "a reader holds its snapshot under load", false, func(t *testing.T) { longSnapshot(t, seconds(15, 60)) })
	addRow("F17", "auditors open and close under load", true, func(t *testing.T) { auditFor(t, seconds(6, 60)) })
	f18Store := elsewhere(map[string]string{"db": "TestDisturbed.*|TestOthersMayCopyTheLog|TestCopiesAreNotTakenForDisturbance"}, 2)
	addRow("F18", "files removed, moved, cut, overwritten", true, func(t *testing.T) {
		t.Run("the store", f18Store)
		t.Run("the daemon", removedFiles)
	})
	f20Store := elsewhere(map[string]string{"db": "TestRights|TestReadOnlyFileSystem|TestRefusedFiles|TestAuditorWithoutRights|TestOpenErrors"}, 2)
	addRow("F20", "read-only, wrong rights, no folder", true, func(t *testing.T) {
		t.Run("the store", f20Store)
		t.Run("the daemon", noPlace)
	})
	addRow("F22", "SIGSTOP, SIGTERM under load", true, func(t *testing.T) {
		t.Run("SIGTERM", TestStopUnderLoad)
		t.Run("SIGSTOP", func(t *testing.T) { freeze(t, seconds(2, 10)) })
	})
	f29Store := elsewhere(map[string]string{"db": "TestBackup.*|TestRestoreBackup.*|TestACrashInTheMiddle.*", "daemon": "Test.*Backup.*"}, 3)
	addRow("F29", "backups under load and crash", true, func(t *testing.T) {
		t.Run("the store", f29Store)
		t.Run("killed", killedBackups)
	})
}

// lockedLong holds the write lock for longer than a write may wait.
func lockedLong(t *testing.T, long time.Duration) {
	needSqlite(t)
	d := NewDaemon(t)
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 4)
	load.start(h)
	unlock := lockDatabase(t, d.DB)
	before, busy, c := load.acked.Load(), 0, d.Client()
	for began := time.Now(); time.Since(began) < long; {
		asked := time.Now()
		_, err := h.Save(context.Background(), c, newSave(t, "agent-0"))
		if e := ckpt.AsError(err); err == nil || e.Code != ckpt.CodeBusy || e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || time.Since(asked) > slack(15*time.Second) {
			t.Errorf("behind a lock: %v after %v", err, time.Since(asked))
		}
		busy++
	}
	if now := load.acked.Load(); now > before+4 {
		t.Errorf("%d saves were acknowledged behind a lock", now-before)
	}
	before = load.acked.Load()
	unlock()
	load.goesOn(before, "the lock is gone")
	load.finish()
	note(t, "locked for %v: busy was answered %d times, the longest try took %v", long, busy, h.Sum().Longest.Round(time.Millisecond))
	h.Check(t, d.Client, load.agents...)
	count(t, figures{rounds: 1})
	d.Audit()
	d.Stop()
	d.Verify()
}

// longSnapshot is F16: a reader prevents the log from starting over. Saves
// continue, status reports the long log, and the log is short again afterwards.
func longSnapshot(t *testing.T, long time.Duration) {
	needSqlite(t)
	d := NewDaemon(t)
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 8)
	load.most, load.pause = 400<<10, 25*time.Millisecond
	shell := exec.Command("sqlite3", "-readonly", d.DB)
	in, err := shell.StdinPipe()
	must(t, err)
	out, err := shell.StdoutPipe()
	must(t, err)
	must(t, shell.Start())
	_, err = in.Write([]byte("BEGIN; SELECT count(*) FROM audit_log;\n"))
	must(t, err)
	_, err = out.Read(make([]byte, 20))
	must(t, err)
	load.start(h)
	alarm, longest, began := "", int64(0), time.Now()
	for time.Since(began) < long {
		time.Sleep(500 * time.Millisecond)
		st, err := d.Client().Status(context.Background())
		must(t, err)
		longest = max(longest, st.Database.WALBytes)
		if len(st.Problems) > 0 && alarm == "" {
			alarm = fmt.Sprintf("after %v: %s", time.Since(began).Round(time.Second), st.Problems[0])
		}
	}
	before := load.acked.Load()
	in.Close()
	_ = shell.Wait()
	ended := time.Now()
	const copied = 100 << 20 // what a slow disk writes in a second: everything in the log must be copied first
	for fileSize(d.DB+"-wal") > 150<<20 && time.Since(ended) < 30*time.Second {
		time.Sleep(50 * time.Millisecond)
	}
	took, size := time.Since(ended), fileSize(d.DB+"-wal")
	load.goesOn(before, "the reader is gone")
	load.finish()
	note(t, "the log grew to %d MiB in %v (%d saves); alarm %q; %v after the reader's end it had %d MiB", longest>>20, long, before, alarm, took.Round(time.Millisecond), size>>20)
	if size > 150<<20 || took > 5*time.Second+time.Duration(longest/copied)*time.Second {
		t.Errorf("%v after the reader's end the log has %d bytes", took, size)
	}
	if longest > 300<<20 && alarm == "" {
		t.Errorf("nobody said that the log had %d bytes", longest)
	}
	h.Check(t, d.Client, load.agents...)
	count(t, figures{rounds: 1})
	d.Stop()
	d.Verify()
}

// removedFiles is F18 over the socket: after the files are removed, nothing is
// acknowledged, and the daemon ends with its own exit code within a second or
// at the next save.
func removedFiles(t *testing.T) {
	for name, harm := range map[string]func(db string) error{
		"rm":       func(db string) error { return os.Remove(db) },
		"mv":       func(db string) error { return os.Rename(db, db+".away") },
		"rm log":   func(db string) error { return os.Remove(db + "-wal") },
		"truncate": func(db string) error { return os.Truncate(db, 512) },
		"cp":       func(db string) error { return run("cp", "/etc/passwd", db) },
	} {
		t.Run(name, func(t *testing.T) {
			d, h := NewDaemon(t), NewHistory()
			d.Start()
			load := newLoad(t, d, 4)
			load.start(h)
			load.reach(20)
			must(t, harm(d.DB))
			time.Sleep(2 * time.Millisecond) // a commit may be in progress; its outcome is reported as unknown
			harmed := load.acked.Load()
			began := time.Now()
			code, err := d.Wait(slack(5 * time.Second))
			if err != nil || code != 74 {
				t.Errorf("exit code %d, %v", code, err)
			}
			later := load.acked.Load() - harmed
			if later > 8 { // answers that were already on their way
				t.Errorf("%d saves were acknowledged after the files were gone", later)
			}
			t.Logf("ended after %v", time.Since(began).Round(time.Millisecond))
			count(t, figures{rounds: 1})
			load.abandon()
		})
	}
}

// noPlace is F20 over the command line: the command prints one line, ends with
// an exit code, and does not loop.
func noPlace(t *testing.T) {
	needRoot(t, "mount")
	for name, make := range map[string]func(t *testing.T, d *Daemon){
		"read-only file system": func(t *testing.T, d *Daemon) {
			m := newExt4(t, 8<<20)
			must(t, run("mount", "-o", "remount,ro", m.dir))
			d.DB = filepath.Join(m.dir, "ckpt.db")
		},
		"a file where the folder should be": func(t *testing.T, d *Daemon) {
			must(t, os.WriteFile(filepath.Join(d.Dir, "file"), nil, 0o600))
			d.DB = filepath.Join(d.Dir, "file", "ckpt.db")
		},
		"a folder where the file should be": func(t *testing.T, d *Daemon) {
			d.DB = filepath.Join(d.Dir, "folder")
			must(t, os.Mkdir(d.DB, 0o700))
		},
		"text": func(t *testing.T, d *Daemon) {
			d.DB = filepath.Join(d.Dir, "text.db")
			must(t, os.WriteFile(d.DB, []byte(strings.Repeat("no database\n", 2000)), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDaemon(t)
			make(t, d)
			code, took, said := d.refused()
			t.Logf("exit code %d in %v: %s", code, took.Round(time.Millisecond), said)
			if code != exitOperator || strings.Contains(said, "\n") || took > slack(5*time.Second) {
				t.Errorf("not refused with one line and exit code %d: %d in %v: %s", exitOperator, code, took, said)
			}
			count(t, figures{rounds: 1})
		})
	}
}

// killedBackups is F29 with the command: wherever a backup is killed, a file
// that has the name of a backup passes verify.
func killedBackups(t *testing.T) {
	rounds := 30
	if isShort() {
		rounds = 5
	}
	d, h, random := NewDaemon(t), NewHistory(), newRand(t, 0)
	d.Start()
	load := newLoad(t, d, 4)
	load.start(h)
	load.reach(50)
	whole := 0
	for n := range rounds {
		out := filepath.Join(d.Dir, fmt.Sprintf("backup-%d.db", n))
		cmd := d.command("backup", "--db", d.DB, out)
		must(t, cmd.Start())
		kill := time.AfterFunc(time.Duration(random.Int64N(int64(250*time.Millisecond))), func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it may have been killed
		kill.Stop()
		if _, err := os.Stat(out); err != nil {
			continue
		}
		whole++
		if said, err := d.command("verify", "--db", out).CombinedOutput(); err != nil {
			t.Errorf("backup %d: %v: %s", n, err, said)
		}
	}
	load.finish()
	note(t, "%d backups begun and killed at some time, %d were made, all of them verify", rounds, whole)
	h.Check(t, d.Client, load.agents...)
	count(t, figures{rounds: rounds})
	d.Stop()
	d.Verify()
}
