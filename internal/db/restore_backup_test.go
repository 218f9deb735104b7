package db_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// TestRestoreBackup goes back to a backup, keeps the replaced database, and
// records it in the audit log. Then it restores the replaced database.
func TestRestoreBackup(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	dir := filepath.Join(t.TempDir(), "[backups") // a bracket must not be read as a pattern
	must(t, os.Mkdir(dir, 0o700))
	path, backup := filepath.Join(dir, "ckpt.db"), filepath.Join(dir, "backup")
	s := openWith(t, options(path, newClock()))
	before := save(t, s, ann, "a", ckpt.KindRecovery, "1")
	must(t, db.Backup(t.Context(), path, backup, nil))
	after := save(t, s, ann, "a", ckpt.KindRecovery, "2")
	if _, err := db.RestoreBackup(t.Context(), backup, options(path, newClock()), nil, nil); !errors.Is(err, db.ErrLocked) {
		t.Fatalf("under a daemon: %v", err)
	}
	must(t, s.Close())
	must(t, os.Mkdir(filepath.Join(dir, ".restore-ckpt.db-1"), 0o700)) // a killed restore has left it

	first, err := db.RestoreBackup(t.Context(), backup, options(path, newClock()), nil, nil)
	must(t, err)
	holds(t, path, map[string]bool{before.ID: true, after.ID: false})
	report := sound(t, path)
	if got := sqlite3(t, "-readonly", path, "SELECT action || ' ' || json_extract(detail, '$.backup') FROM audit_log WHERE action = 'restore_backup'"); got != "restore_backup "+backup {
		t.Errorf("the audit log of %d rows ends with %q", report.AuditRows, got)
	}

	again, err := db.RestoreBackup(t.Context(), first.Kept, options(path, newClock()), nil, nil)
	must(t, err)
	holds(t, path, map[string]bool{before.ID: true, after.ID: true})
	if first.Kept == again.Kept {
		t.Errorf("both have kept %s", first.Kept)
	}
	for _, file := range []string{first.Kept, again.Kept, backup} {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s is gone", file)
		}
	}
	nothingLeft(t, path)
	if _, err := os.Stat(path + ".failed"); err == nil {
		t.Error("the marker of a fault is left")
	}
}

// TestNoEpochTwice: after a restore, a new owner of a run does not get an epoch that the replaced database has given to
// an owner that may still write. That owner goes on until somebody resumes the run.
func TestNoEpochTwice(t *testing.T) {
	t.Parallel()
	for _, replaced := range []string{"whole", "unreadable"} {
		t.Run(replaced, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, backup := filepath.Join(dir, "ckpt.db"), filepath.Join(dir, "backup")
			with := func() db.Options {
				o := options(path, newClock())
				o.Resume, o.Processes = resume.Make, &processes{dead: map[int]bool{}}
				return o
			}
			claim := func(s *db.Store, run string) int64 {
				t.Helper()
				plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a", Run: run, Force: true})
				must(t, err)
				return plan.Epoch
			}
			write := func(s *db.Store, run string, epoch int64) error {
				r := request("a", ckpt.KindRoutine, `1`)
				r.Run, r.Epoch = run, &epoch
				_, err := s.Save(t.Context(), ann, r)
				return err
			}
			s := openWith(t, with())
			must(t, write(s, "old", claim(s, "old")))
			must(t, db.Backup(t.Context(), path, backup, nil))
			must(t, write(s, "old", claim(s, "old")))
			claim(s, "new")
			lives, isNew, young := claim(s, "old"), claim(s, "new"), claim(s, "young")
			must(t, s.Close())
			if replaced == "unreadable" {
				must(t, os.WriteFile(path, bytes.Repeat([]byte("x"), 8192), 0o600))
			}
			_, err := db.RestoreBackup(t.Context(), backup, with(), nil, nil)
			must(t, err)
			sound(t, path)

			s = openWith(t, with())
			if replaced == "whole" {
				must(t, write(s, "old", lives))
			}
			must(t, write(s, "young", young)) // its owner is alive, and nobody else has claimed it
			must(t, write(s, "young", young))
			for run, epoch := range map[string]int64{"old": lives, "new": isNew, "young": young} {
				if next := claim(s, run); next <= epoch {
					t.Errorf("run %s got epoch %d, and %d has an owner", run, next, epoch)
				}
				wantCode(t, write(s, run, epoch), ckpt.CodeFenced)
			}
			must(t, s.Close())
			sound(t, path)
		})
	}
}

// TestARunOfALostDatabase: a writer that has claimed its run in another database goes on in a new one with its epoch.
func TestARunOfALostDatabase(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	write := func(epoch int64) error {
		r := request("a", ckpt.KindRoutine, `1`)
		r.Epoch = &epoch
		_, err := s.Save(t.Context(), ann, r)
		return err
	}
	wantCode(t, write(1<<50), ckpt.CodeInvalid)
	must(t, write(4))
	must(t, write(4))
	wantCode(t, write(3), ckpt.CodeFenced)
	four := int64(4)
	_, _, err := s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "b", Epoch: &four}, ckpt.StepRequest{Key: "k", Name: "k"})
	must(t, err)
	_, _, err = s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "b", Epoch: &four}, ckpt.StepRequest{Key: "k2", Name: "k"})
	must(t, err)
	plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a", Force: true})
	must(t, err)
	if plan.Epoch != 5 {
		t.Errorf("epoch %d", plan.Epoch)
	}
}

// nothingLeft checks that a restore has left no note and no copy.
func nothingLeft(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	for _, entry := range entries {
		name, database := entry.Name(), filepath.Base(path)
		if strings.HasPrefix(name, database+".restoring") || name == database+".failed" || strings.HasPrefix(name, ".") {
			t.Errorf("left over: %s", name)
		}
	}
}

// holds checks which checkpoints a database has when the next daemon opens it.
func holds(t *testing.T, path string, want map[string]bool) {
	t.Helper()
	s := openWith(t, options(path, newClock()))
	for id, there := range want {
		if _, err := s.Checkpoint(t.Context(), ann, id, true); (err == nil) != there {
			t.Errorf("%s is there: %v, want %v", id, err == nil, there)
		}
	}
	must(t, s.Close())
}

func TestRestoreBackupWhereNothingIs(t *testing.T) {
	t.Parallel()
	source := closedDatabase(t)
	path := filepath.Join(t.TempDir(), "new", "ckpt.db")
	done, err := db.RestoreBackup(t.Context(), source, options(path, newClock()), nil, nil)
	must(t, err)
	if done.Kept != "" {
		t.Errorf("kept %s, where nothing was", done.Kept)
	}
	sound(t, path)
}

// TestRestoreBackupRefusals: a refused restore changes nothing.
func TestRestoreBackupRefusals(t *testing.T) {
	t.Parallel()
	_, damagedPath, _, _ := damaged(t)
	path := closedDatabase(t)
	text, err := os.ReadFile(path)
	must(t, err)
	_, err = db.RestoreBackup(t.Context(), damagedPath, options(path, newClock()), nil, nil)
	var damage *db.DamagedError
	if !errors.As(err, &damage) || !strings.Contains(err.Error(), damagedPath) {
		t.Errorf("a damaged backup: %v", err)
	}
	foreign := filepath.Join(t.TempDir(), "x.db")
	sqlite3(t, foreign, "CREATE TABLE t (x)")
	for _, file := range []string{foreign, path + ".none"} {
		var operator *db.OperatorError
		if _, err := db.RestoreBackup(t.Context(), file, options(path, newClock()), nil, nil); !errors.As(err, &operator) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(text) {
		t.Errorf("the database was changed: %v", err)
	}
	if entries, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*before*")); len(entries) > 0 {
		t.Errorf("something was moved: %v", entries)
	}
}

// TestACrashInTheMiddleOfARestoreBeginsNothingAnew simulates the moment when
// the old database has been moved away and the backup is not there yet. A start
// must not create a new database.
func TestACrashInTheMiddleOfARestoreBeginsNothingAnew(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	write(t, path+".failed", []byte("{}"))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+suffix, path+".before"+suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	var operator *db.OperatorError
	if s, err := db.Open(t.Context(), options(path, newClock())); !errors.As(err, &operator) {
		t.Fatalf("a daemon began anew: %v, %v", s, err)
	}
	_, err := db.RestoreBackup(t.Context(), path+".before", options(path, newClock()), nil, nil)
	must(t, err)
	sound(t, path)
}
