package db_test

import (
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestHeartbeatsStayInMemory: a heartbeat writes nothing, and everybody who asks for the newest sign of life sees it. It is on disk after its
// time, or when the database is closed.
func TestHeartbeatsStayInMemory(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	run := start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	path := pathOf(s)
	onDisk := func() string {
		return sqlite3(t, "-readonly", path, `SELECT heartbeat_at || ' ' || coalesce(progress, '') FROM runs`)
	}
	seen := func() time.Time {
		t.Helper()
		watched, err := s.Watched(t.Context(), 0, 10)
		must(t, err)
		return watched[0].LastBeat
	}
	progress := 0.75 // the first one writes
	_, err := s.Beat(t.Context(), as(11), ckpt.RunRef{Agent: "a"}, ckpt.Heartbeat{Progress: &progress})
	must(t, err)
	before, written := onDisk(), s.Commits.Load()
	var at time.Time
	for _, again := range []*float64{nil, &progress, nil} {
		c.add(time.Second)
		at = c.Now()
		shown, err := s.Beat(t.Context(), as(11), ckpt.RunRef{Agent: "a"}, ckpt.Heartbeat{Epoch: &run.Epoch, Progress: again})
		must(t, err)
		if shown.Progress == nil || *shown.Progress != progress || shown.Drift == nil {
			t.Fatalf("answered %+v", shown)
		}
		if beat := seen(); !beat.Equal(at) {
			t.Errorf("the monitor sees the heartbeat of %s at %s", beat, at)
		}
	}
	if is := onDisk(); is != before || s.Commits.Load() != written {
		t.Errorf("three heartbeats took %d transactions, and changed %q to %q", s.Commits.Load()-written, before, is)
	}
	must(t, s.KeepBeats(t.Context(), false))
	if s.Commits.Load() != written {
		t.Error("heartbeats were written before their time")
	}
	must(t, s.KeepBeats(t.Context(), true))
	if is, want := onDisk(), ckpt.At(at).String()+" 0.75"; is != want {
		t.Errorf("on disk is %q, want %q", is, want)
	}
	// A write of the run after a heartbeat is the newer sign, also for the heartbeat's own write.
	beatAt := func() {
		t.Helper()
		c.add(time.Second)
		_, err := s.Beat(t.Context(), as(11), ckpt.RunRef{Agent: "a"}, ckpt.Heartbeat{})
		must(t, err)
	}
	beatAt()
	c.add(time.Second)
	save(t, s, as(11), "a", ckpt.KindRoutine, `2`)
	if beat := seen(); !beat.Equal(c.Now()) {
		t.Errorf("after a save the monitor sees %s, want %s", beat, c.Now())
	}
	saved := onDisk()
	must(t, s.KeepBeats(t.Context(), true))
	if is := onDisk(); is != saved {
		t.Errorf("an older heartbeat has replaced %q by %q", saved, is)
	}
	beatAt()
	last := c.Now()
	must(t, s.Close())
	if is, want := onDisk(), ckpt.At(last).String()+" 0.75"; is != want {
		t.Errorf("after a stop on disk is %q, want %q", is, want)
	}
}

// TestHeartbeatsThatWrite: a heartbeat that changes more than the sign of life is on disk before its answer, and a fenced one is refused.
func TestHeartbeatsThatWrite(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	run := start(t, s, 11)
	ref := ckpt.RunRef{Agent: "a"}
	die(t, s, p, 11, ckpt.RunInterrupted)
	p.begin(11, "again")
	c.add(time.Second)
	shown, err := s.Beat(t.Context(), as(11), ref, ckpt.Heartbeat{Epoch: &run.Epoch, PID: 11})
	must(t, err)
	if status := sqlite3(t, "-readonly", pathOf(s), `SELECT status FROM runs`); shown.Status == ckpt.RunInterrupted || status != "running" {
		t.Errorf("a heartbeat of a run that was found dead: %s, on disk %s", shown.Status, status)
	}
	later, earlier := 0.5, 0.25
	for _, progress := range []*float64{&later, &earlier} {
		_, err = s.Beat(t.Context(), as(11), ref, ckpt.Heartbeat{Progress: progress})
		must(t, err)
	}
	if is := sqlite3(t, "-readonly", pathOf(s), `SELECT progress FROM runs`); is != "0.25" {
		t.Errorf("progress that fell is %s on disk", is)
	}
	old := run.Epoch - 1
	_, err = s.Beat(t.Context(), as(11), ref, ckpt.Heartbeat{Epoch: &old})
	wantCode(t, err, ckpt.CodeFenced)
	_, err = s.Beat(t.Context(), as(11), ckpt.RunRef{Agent: "nobody"}, ckpt.Heartbeat{})
	wantCode(t, err, ckpt.CodeNotFound)
}

// TestEveryHeartbeatIsWritten: a store can be set to write each heartbeat before its answer.
func TestEveryHeartbeatIsWritten(t *testing.T) {
	t.Parallel()
	c := newClock()
	o := options(t.TempDir()+"/ckpt.db", c)
	o.BeatsKept = -1
	s := openWith(t, o)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	c.add(time.Minute)
	_, err := s.Beat(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.Heartbeat{})
	must(t, err)
	if is, want := sqlite3(t, "-readonly", o.Path, `SELECT heartbeat_at FROM runs`), ckpt.At(c.Now()).String(); is != want {
		t.Errorf("on disk is %s, want %s", is, want)
	}
}

// BenchmarkBeats measures the heartbeats of 200 runs, in memory and each on disk before its answer.
func BenchmarkBeats(b *testing.B) {
	for name, kept := range map[string]time.Duration{"memory": 30 * time.Second, "disk": -1} {
		b.Run(name, func(b *testing.B) {
			o := options(b.TempDir()+"/ckpt.db", newClock())
			o.BeatsKept = kept
			s, err := db.Open(b.Context(), o)
			must(b, err)
			defer s.Close()
			refs := make([]ckpt.RunRef, 200)
			for i := range refs {
				refs[i] = ckpt.RunRef{Agent: "a", Run: string(rune('a'+i%26)) + string(rune('a'+i/26))}
				r := request("a", ckpt.KindRoutine, `1`)
				r.Run = refs[i].Run
				_, err := s.Save(b.Context(), ann, r)
				must(b, err)
			}
			written := s.Commits.Load()
			b.ResetTimer()
			for i := range b.N {
				_, err := s.Beat(b.Context(), ann, refs[i%len(refs)], ckpt.Heartbeat{})
				must(b, err)
			}
			b.ReportMetric(float64(s.Commits.Load()-written)/float64(b.N), "commits/op")
		})
	}
}
