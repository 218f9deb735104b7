package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// realBackups returns a schedule for a real database, whose clock the test moves.
func realBackups(t *testing.T, change func(*Config)) (*backups, *time.Time) {
	t.Helper()
	c := sound(t)
	c.BackupInterval, c.BackupKeep, c.BackupDrill = ckpt.Duration(time.Hour), 3, ckpt.Duration(24*time.Hour)
	c.BackupAfterTimeout = ckpt.Duration(time.Hour)
	if change != nil {
		change(&c)
	}
	s, err := db.Open(t.Context(), db.Options{Path: c.Database, Mode: 0o600, Retention: retention.Plan})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return newBackups(&c, slog.New(slog.DiscardHandler), func() time.Time { return now }), &now
}

// TestDrill: the newest backup is restored beside the backups and verified. A damaged one is told, and nothing of the
// trial stays.
func TestDrill(t *testing.T) {
	b, now := realBackups(t, nil)
	if made, err := b.Drill(t.Context()); made || err != nil {
		t.Errorf("without a backup: %v, %v", made, err)
	}
	name, err := b.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if due := b.drillDue(); due != 0 {
		t.Errorf("the first drill is due in %v", due)
	}
	if made, err := b.Drill(t.Context()); !made || err != nil {
		t.Fatalf("%v, %v", made, err)
	}
	if s := b.Status(); !s.DrillLast.Equal(*now) || s.DrillError != "" || b.drillDue() != 24*time.Hour || len(b.problems(s, *now)) > 0 {
		t.Errorf("%+v, due in %v, %q", s, b.drillDue(), b.problems(s, *now))
	}
	if got := strings.Join(names(t, b), " "); got != filepath.Base(name)+" drill.json" {
		t.Errorf("the folder has %s", got)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(text) / 2; i < len(text)/2+4096; i++ {
		text[i] ^= 0x55
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Hour)
	if _, err := b.Drill(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a damaged backup: %v", err)
	}
	s := b.Status()
	if problems := b.problems(s, *now); s.DrillError == "" || !strings.Contains(strings.Join(problems, ""), "could not be restored on trial: "+name) {
		t.Errorf("%+v: %q", s, problems)
	}
	if got := strings.Join(names(t, b), " "); got != filepath.Base(name)+" drill.json" {
		t.Errorf("the folder has %s", got)
	}
}

// TestAfterABackup: the program gets each verified backup once, and again if it failed, also after a restart.
func TestAfterABackup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program of this test is a shell script")
	}
	dir := t.TempDir()
	program, out := filepath.Join(dir, "after"), filepath.Join(dir, "out")
	script := func(text string) {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	open := func() (*backups, *time.Time) {
		b, now := realBackups(t, func(c *Config) {
			c.Database, c.BackupAfter = filepath.Join(dir, "ckpt.db"), program
		})
		b.failed = func(_ context.Context, message string) { told = append(told, message) }
		return b, now
	}
	b, now := open()
	script(`echo "no room in the bucket" >&2; exit 3`)
	name, err := b.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.hand(t.Context())
	s := b.Status()
	if want := "the command ended: exit status 3: no room in the bucket"; s.AfterError != want || len(told) != 1 || b.owed() != name ||
		!strings.Contains(strings.Join(b.problems(s, *now), ""), want) {
		t.Errorf("%+v, told %q, owed %q", s, told, b.owed())
	}
	script(`test -s "$1" && echo "$1" >> ` + out)
	b, _ = open()
	if b.Status().AfterError == "" || b.owed() != name {
		t.Error("a restart forgets the backup that was not taken")
	}
	b.hand(t.Context())
	b.hand(t.Context())
	if s := b.Status(); s.AfterError != "" || b.owed() != "" {
		t.Errorf("%+v, owed %q", s, b.owed())
	}
	if got, _ := os.ReadFile(out); string(got) != name+"\n" {
		t.Errorf("the program was given %q, want %q once", got, name)
	}
}
