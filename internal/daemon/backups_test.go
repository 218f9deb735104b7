package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// scheduled returns a backup schedule whose clock the test moves and whose
// copies are small.
func scheduled(t *testing.T) (*backups, *time.Time) {
	t.Helper()
	c := sound(t)
	c.BackupInterval, c.BackupKeep = ckpt.Duration(time.Hour), 3
	if err := os.WriteFile(c.Database, []byte("database"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := newBackups(&c, slog.New(slog.DiscardHandler), func() time.Time { return now })
	b.copy = func(_ context.Context, _, out string) error { return os.WriteFile(out, []byte("copy"), 0o600) }
	return b, &now
}

func names(t *testing.T, b *backups) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(b.folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestTheNewestFewBackupsStay(t *testing.T) {
	b, now := scheduled(t)
	if err := os.MkdirAll(b.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, others := range []string{"ckpt-by-hand.db", "ckpt-20260301T090000Z.db.txt", "notes"} {
		if err := os.WriteFile(filepath.Join(b.folder, others), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if _, err := b.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Hour)
	}
	want := []string{"ckpt-20260301T090000Z.db.txt", "ckpt-20260301T140000Z.db", "ckpt-20260301T150000Z.db", "ckpt-20260301T160000Z.db", "ckpt-by-hand.db", "notes"}
	if diff := cmp.Diff(want, names(t, b)); diff != "" {
		t.Error(diff)
	}
	if s := b.Status(); s.Kept != 3 || s.Last.String() != "2026-03-01T16:00:00.000Z" || s.LastBytes != 4 || s.LastError != "" {
		t.Errorf("status %+v", s)
	}
}

// TestWhatAKilledBackupLeftIsRemoved: a copy that nobody has changed for a day is removed before
// the next backup needs the space.
func TestWhatAKilledBackupLeftIsRemoved(t *testing.T) {
	b, now := scheduled(t)
	for name, age := range map[string]time.Duration{".backup-old": 25 * time.Hour, ".backup-young": time.Hour, "another": 25 * time.Hour} {
		file := filepath.Join(b.folder, name, "ckpt.db")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600),
			os.Chtimes(file, time.Time{}, now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".backup-young", "another", "ckpt-20260301T120000Z.db"}, names(t, b)); diff != "" {
		t.Error(diff)
	}
}

// TestAFailedBackupCostsNoOlderOne: the existing backups stay until a newer one
// has been verified.
func TestAFailedBackupCostsNoOlderOne(t *testing.T) {
	b, now := scheduled(t)
	for range 3 {
		if _, err := b.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Hour)
	}
	b.copy = func(context.Context, string, string) error { return errors.New("the copy is damaged") }
	for range 5 {
		if _, err := b.Once(t.Context()); err == nil {
			t.Fatal("a damaged copy is a backup")
		}
		*now = now.Add(time.Hour)
	}
	s := b.Status()
	if len(names(t, b)) != 3 || s.Kept != 3 || !strings.Contains(s.LastError, "damaged") {
		t.Errorf("left %q, status %+v", names(t, b), s)
	}
	if problem := strings.Join(b.problems(s, *now), "; "); !strings.Contains(problem, "damaged") {
		t.Errorf("the problem is told as %q", problem)
	}
}

func TestWhenABackupIsDue(t *testing.T) {
	b, now := scheduled(t)
	if due := b.due(); due != 0 {
		t.Errorf("the first is due in %v", due)
	}
	if _, err := b.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ clock, want time.Duration }{{10 * time.Minute, 50 * time.Minute}, {2 * time.Hour, -time.Hour}, {-24 * time.Hour, 0}} {
		*now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(step.clock)
		if due := b.due(); due != step.want {
			t.Errorf("%v later it is due in %v, want %v", step.clock, due, step.want)
		}
	}
	*now = time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC)
	if problem := strings.Join(b.problems(b.Status(), *now), "; "); !strings.Contains(problem, "due every 1h") {
		t.Errorf("an overdue backup is told as %q", problem)
	}
}

// TestBackupsAfterTheMachineHasSlept: timers stand still meanwhile, and the clock does not.
func TestBackupsAfterTheMachineHasSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, now := scheduled(t)
		var slept atomic.Int64
		b.now = func() time.Time { return now.Add(time.Duration(slept.Load())) }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		slept.Store(int64(24 * time.Hour))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if got := names(t, b); len(got) != 2 {
			t.Errorf("there are %q", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestBackupsAfterTheClockWasSetBack: backups with names from the future count as the oldest, so
// that the next one is not due at once, and the newer ones stay.
func TestBackupsAfterTheClockWasSetBack(t *testing.T) {
	b, now := scheduled(t)
	for range 3 {
		if _, err := b.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		*now = now.Add(time.Hour)
	}
	*now = now.Add(-24 * time.Hour)
	for range 2 {
		if due := b.due(); due > 0 {
			t.Errorf("the next is due in %v", due)
		}
		if _, err := b.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if due := b.due(); due != time.Hour {
			t.Errorf("after a backup the next is due in %v", due)
		}
		*now = now.Add(time.Hour)
	}
	want := []string{"ckpt-20260228T150000Z.db", "ckpt-20260228T160000Z.db", "ckpt-20260301T140000Z.db"}
	if diff := cmp.Diff(want, names(t, b)); diff != "" {
		t.Error(diff)
	}
	if s := b.Status(); s.Last.String() != "2026-02-28T16:00:00.000Z" {
		t.Errorf("status %+v", s)
	}
}

// TestTheDaemonBacksItselfUp uses the real store: the backup passes verify, and
// administrators can see it.
func TestTheDaemonBacksItselfUp(t *testing.T) {
	c := sound(t)
	c.BackupInterval = ckpt.Duration(time.Hour)
	r := start(t, c)
	r.save("a", `{"n":1}`)
	b := newBackups(&c, slog.New(slog.DiscardHandler), time.Now)
	name, err := b.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report, err := VerifyAgainst(t.Context(), name, nil, nil)
	if err != nil || len(report.Problems) > 0 || report.Checkpoints != 1 {
		t.Errorf("the backup: %+v, %v", report, err)
	}
	status, err := r.client.Status(t.Context())
	if err != nil || status.Backup.Kept != 1 || status.Backup.Folder != filepath.Join(filepath.Dir(c.Database), "backups") {
		t.Errorf("status: %+v, %v", status.Backup, err)
	}
}
