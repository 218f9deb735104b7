package db_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestTheFileIsFlatUnderKeep: old rows of the audit log move to archives and old keys are forgotten. If agents do
// the same things each day, the database stops growing once it has the days that are kept. Each day has runs and
// agents with new names.
func TestTheFileIsFlatUnderKeep(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	const keep = 10 * 24 * time.Hour
	days := 60
	if testing.Short() {
		days = 36
	}
	folder, c := t.TempDir(), newClock()
	o := options(filepath.Join(folder, "ckpt.db"), c)
	s := openWith(t, o)
	var sizes []int64
	for day := range days {
		aDayOfSaves(t, s, c, day)
		_, err := s.Expire(t.Context(), c.Now().Add(-7*24*time.Hour), 10_000)
		must(t, err)
		s.ArchiveInto(folder, 0o700)
		_, err = s.ArchiveOld(t.Context(), keep)
		must(t, err)
		must(t, s.Upkeep(t.Context()))
		info, err := os.Stat(o.Path)
		must(t, err)
		sizes = append(sizes, info.Size())
	}
	full := int(keep/(24*time.Hour)) + 3
	middle, last := slices.Max(sizes[full:(full+days)/2]), slices.Max(sizes[(full+days)/2:])
	t.Logf("the file has %d KiB after %d days, at most %d to day %d, and at most %d to day %d", sizes[full]>>10, full, middle>>10, (full+days)/2, last>>10, days)
	if last > middle+middle/20 {
		t.Errorf("the file grows from %d to %d bytes", middle, last)
	}
	flawless(t, o.Path)
}

// TestTheLeastKeep: rows move to an archive with the smallest keep that the settings allow, although time passes
// while the daemon reads the clock.
func TestTheLeastKeep(t *testing.T) {
	t.Parallel()
	folder, c := t.TempDir(), newClock()
	o := options(filepath.Join(folder, "ckpt.db"), c)
	o.Now = func() time.Time { c.add(time.Millisecond); return c.Now() }
	s := openWith(t, o)
	aDayOfSaves(t, s, c, 1)
	c.add(db.ArchiveMinAge)
	unmade := filepath.Join(folder, ".making-1") // of a daemon that was killed
	must(t, os.Mkdir(unmade, 0o700))
	write(t, filepath.Join(unmade, "ckpt.db"), nil)
	must(t, os.Chtimes(filepath.Join(unmade, "ckpt.db"), time.Time{}, c.Now().Add(-25*time.Hour)))
	s.ArchiveInto(folder, 0o700)
	archived, err := s.ArchiveOld(t.Context(), db.ArchiveMinAge)
	must(t, err)
	if archived == nil || archived.Removed == 0 {
		t.Errorf("no row went to an archive: %+v", archived)
	}
	if _, err := os.Lstat(unmade); err == nil {
		t.Error("an archive that was not completed is left")
	}
}

// aDayOfSaves makes the saves that some agents make each day.
func aDayOfSaves(t *testing.T, s *db.Store, c *clock, day int) {
	t.Helper()
	for i := range 120 {
		r := request(fmt.Sprint("agent", i%4), ckpt.KindRoutine, fmt.Sprintf(`{"day":%d,"i":%d}`, day, i))
		r.ID, r.Run = newID(t), fmt.Sprint("run", i%8)
		_, err := s.Save(t.Context(), ann, r)
		must(t, err)
		c.add(10 * time.Minute)
	}
	gone := fmt.Sprint("gone", day)
	save(t, s, bob, gone, ckpt.KindRoutine, `{}`)
	_, err := s.Erase(t.Context(), bob, gone)
	must(t, err)
	c.add(4 * time.Hour)
}
