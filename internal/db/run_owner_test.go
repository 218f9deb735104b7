package db_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestARunNamesProcessesOfItsCaller: a run can name only processes of its
// caller, unless an administrator names one. Another user's process is replaced
// by the caller's own, and so is the pid of no process.
func TestARunNamesProcessesOfItsCaller(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	p.owners = map[int]string{1: "uid:0", 4711: ann.Owner, 4712: bob.Owner}
	own := func(sc ckpt.Scope, run string, pid int) int64 {
		t.Helper()
		_, _, err := s.StartRun(t.Context(), sc, ckpt.RunRequest{Agent: "a", Run: run, PID: pid})
		must(t, err)
		shown, err := s.Run(t.Context(), sc, ckpt.RunRef{Agent: "a", Run: run})
		must(t, err)
		if shown.PID == 0 {
			return 0
		}
		return int64(shown.PID)
	}
	for _, c := range []struct {
		run       string
		scope     ckpt.Scope
		pid, want int
	}{
		{"own", ann, 4711, 4711}, {"a stranger's", ann, 4712, ann.PID}, {"the first process", ann, 1, ann.PID},
		{"nobody's", ann, 99, 99}, {"an administrator's choice", root, 4712, 4712},
	} {
		if got := own(c.scope, "r"+c.run[:1], c.pid); got != int64(c.want) {
			t.Errorf("%s: the owner is %d, want %d", c.run, got, c.want)
		}
	}
}

// TestAFullDiskIsToldRarely: a disk that is repeatedly full and then a little
// free is logged once a minute.
func TestAFullDiskIsToldRarely(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	s := openWith(t, o)
	for range 20 {
		must(t, s.FillAndFree())
	}
	if n := strings.Count(said.String(), "the disk is full"); n != 1 {
		t.Errorf("it is told %d times:\n%s", n, said.String())
	}
	if n := strings.Count(said.String(), "is restored: saves continue"); n != 1 {
		t.Errorf("that there is room again is told %d times", n)
	}
}
