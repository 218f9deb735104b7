package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// writing is a way to store something. It stores about size bytes, different
// ones each time.
type writing struct {
	name string
	do   func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error
}

func textOf(n, size int) string {
	b := noise(uint64(n), size/2)
	return fmt.Sprintf("%x", b)
}

func quoted(s string) ckpt.JSON { return ckpt.JSON(`"` + s + `"`) }

// writings returns all ways to store something.
func writings() []writing {
	ref := ckpt.RunRef{Agent: "a"}
	thread := ckpt.GraphThread{Thread: "t"}
	return []writing{
		{"save", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, err := s.Save(ctx, sc, binary("a", ckpt.KindRecovery, noise(uint64(n), size)))
			return err
		}},
		{"small saves", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			for i := range size / 1000 {
				r := binary("small", ckpt.KindRecovery, noise(uint64(1000*n+i), 200))
				r.IdempotencyKey = fmt.Sprint(n, "-", i)
				if _, err := s.Save(ctx, sc, r); err != nil {
					return err
				}
			}
			return nil
		}},
		{"metadata", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			r := request("a", ckpt.KindRecovery, fmt.Sprint(n))
			r.Metadata = json.RawMessage(`{"m":"` + textOf(n, min(size, 60_000)) + `"}`)
			_, err := s.Save(ctx, sc, r)
			return err
		}},
		{"program", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			r := request("a", ckpt.KindRecovery, fmt.Sprint(n))
			r.Program = &ckpt.Program{Source: textOf(n, size)}
			_, err := s.Save(ctx, sc, r)
			return err
		}},
		{"arguments", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, _, err := s.BeginStep(ctx, sc, ref, ckpt.StepRequest{Key: fmt.Sprint("s", n), Name: "n", Args: quoted(textOf(n, size))})
			return err
		}},
		{"results", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			if _, _, err := s.BeginStep(ctx, sc, ref, ckpt.StepRequest{Key: fmt.Sprint("r", n), Name: "n"}); err != nil {
				return err
			}
			_, _, err := s.FinishStep(ctx, sc, ref, ckpt.StepRequest{Key: fmt.Sprint("r", n), Result: quoted(textOf(n, size))})
			return err
		}},
		{"kept replies", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, _, err := s.BeginStep(ctx, sc, ref, ckpt.StepRequest{Key: "same", Name: "n", Args: quoted(textOf(n, size)), IdempotencyKey: fmt.Sprint("k", n)})
			return err
		}},
		{"events", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, _, err := s.Append(ctx, sc, ref, []ckpt.NewEvent{{Type: "t", Payload: quoted(textOf(n, size))}}, "")
			return err
		}},
		{"small events", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			events := make([]ckpt.NewEvent, 1000)
			for i := range events {
				events[i].Type = "t"
			}
			_, _, err := s.Append(ctx, sc, ref, events, "")
			return err
		}},
		{"goals", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, _, err := s.StartRun(ctx, sc, ckpt.RunRequest{Agent: "a", Run: fmt.Sprint("g", n), Goal: ckpt.Ref(textOf(n, min(size, 64_000)))})
			return err
		}},
		{"ends", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			run := ckpt.RunRef{Agent: "a", Run: fmt.Sprint("e", n)}
			if _, _, err := s.StartRun(ctx, sc, ckpt.RunRequest{Agent: "a", Run: run.Run}); err != nil {
				return err
			}
			_, _, err := s.EndRun(ctx, sc, run, ckpt.EndRequest{Status: ckpt.RunCompleted, Result: quoted(textOf(n, size))})
			return err
		}},
		{"operations", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			key := fmt.Sprint("o", n)
			if _, _, err := s.BeginOperation(ctx, sc, ref, ckpt.OperationRequest{Key: key, Name: "n", State: ckpt.JSON(fmt.Sprint(n))}); err != nil {
				return err
			}
			_, _, err := s.EndOperation(ctx, sc, ref, ckpt.OperationEnd{Key: key, Status: ckpt.OperationSucceeded, Result: quoted(textOf(n, size))})
			return err
		}},
		{"findings", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, _, err := s.PostFinding(ctx, sc, "a", ckpt.FindingRequest{Run: fmt.Sprint("f", n), Rule: "mine", Severity: ckpt.SeverityWarn, Message: "m",
				Evidence: ckpt.JSON(`{"observed":"` + textOf(n, min(size, 60_000)) + `"}`)})
			return err
		}},
		{"LangGraph", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, err := s.GraphPut(ctx, sc, &ckpt.GraphPut{Agent: "lg", GraphThread: thread, Checkpoint: checkpointOf(fmt.Sprintf("%06d", n), `{"a":1}`),
				Metadata: ckpt.JSON(`{}`), Values: jsonValues(channels{"a": string(quoted(textOf(n, size)))})})
			return err
		}},
		{"LangGraph's writes", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			_, err := s.GraphPutWrites(ctx, sc, &ckpt.GraphPutWrites{Agent: "lg", GraphThread: thread, Checkpoint: fmt.Sprintf("%06d", n), Writes: []ckpt.GraphWrite{
				{Task: "t", Channel: "x", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(quoted(textOf(n, size)))}}}})
			return err
		}},
		{"policies", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			p := ckpt.DefaultPolicy()
			p.Schema = ckpt.JSON(`{"description":"` + textOf(n, min(size, 250_000)) + `"}`)
			_, err := s.SetPolicy(ctx, sc, "a", p)
			return err
		}},
		{"agents", func(ctx context.Context, s *db.Store, sc ckpt.Scope, n, size int) error {
			for i := range 20 {
				if _, err := s.SetPolicy(ctx, sc, fmt.Sprintf("agent-%d-%d", n, i), ckpt.DefaultPolicy()); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

func withQuota(t *testing.T, most int64) (*db.Store, string) {
	t.Helper()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.MaxOwnerBytes, o.Drift, o.Resume = most, drift.New(), resume.Make
	return openWith(t, o), o.Path
}

// TestEveryWayToStoreIsCharged fills a quota in one way at a time. It comes to
// an end, no file is much larger than the quota, another owner continues to
// save, and the space that an erasure frees can be used again.
func TestEveryWayToStoreIsCharged(t *testing.T) {
	t.Parallel()
	const quota = 1 << 20
	for _, w := range writings() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s, path := withQuota(t, quota)
			var err error
			for n := 0; err == nil; n++ {
				if n == 400 {
					t.Fatalf("it stored %d times 150 kB, and there is no end", n)
				}
				err = w.do(t.Context(), s, ann, n, 150_000)
			}
			wantCode(t, err, ckpt.CodeQuota)
			rows, log := s.Used(ann.Owner)
			if rows+log < quota/2 || rows+log > quota+quota/8 {
				t.Errorf("%d bytes are counted, %d of them of the log, and the quota is %d", rows+log, log, quota)
			}
			must(t, s.EmptyWAL())
			if info, err := os.Stat(path); err != nil || info.Size() > 2*quota+quota/2 {
				t.Errorf("the database has %d bytes: %v", info.Size(), err)
			}
			save(t, s, bob, "b", ckpt.KindRecovery, `"of another owner"`)
			if w.name == "agents" {
				return // erasing each of them takes long, and proves nothing more
			}
			agents, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{Limit: ckpt.MaxLimit})
			must(t, err)
			for _, a := range agents.Agents {
				_, err := s.Erase(t.Context(), ann, a.Agent)
				must(t, err)
			}
			if rows, _ := s.Used(ann.Owner); rows < 0 || rows > 2000 {
				t.Errorf("after the erasure %d bytes are counted", rows)
			}
			if w.name == "policies" || w.name == "small saves" {
				return // most of it is in the audit log, which only grows
			}
			must(t, w.do(t.Context(), s, ann, 5000, 150_000))
			sound(t, path)
		})
	}
}

// TestCountsAreWhatIsThere: the count that each statement updates matches the
// stored size, after everything was written, replaced and removed.
func TestCountsAreWhatIsThere(t *testing.T) {
	t.Parallel()
	s, path := withQuota(t, 1<<40)
	policy := ckpt.DefaultPolicy()
	policy.MaxEvents = 3
	_, err := s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
	compare := func(when string) {
		t.Helper()
		rows, _ := s.Used(ann.Owner)
		there, err := s.StoredBy(ann.Owner)
		must(t, err)
		if float64(rows) < 0.95*float64(there)-2000 || float64(rows) > 1.1*float64(there)+20_000 {
			t.Errorf("%s: %d bytes are counted and %d are there", when, rows, there)
		}
	}
	for _, w := range writings() {
		if w.name == "policies" {
			continue // an UPDATE is counted as an addition
		}
		for n := range 3 {
			must(t, w.do(t.Context(), s, ann, n, 30_000))
		}
		compare(w.name)
	}
	for n := range 50 { // each removes an older one
		r := binary("a", ckpt.KindRoutine, noise(uint64(n), 100+500*n))
		r.Metadata, r.Labels = json.RawMessage(`{"m":"`+strings.Repeat("m", 500)+`"}`), ckpt.Labels{"l": "v"}
		_, err := s.Save(t.Context(), ann, r)
		must(t, err)
	}
	compare("retention")
	must(t, s.CountAnew(ann.Owner))
	compare("counting anew")
	rows, log := s.Used(ann.Owner)
	must(t, s.Close())
	o := options(path, newClock())
	o.MaxOwnerBytes = 1 << 40
	s = openWith(t, o)
	if again, logAgain := s.Used(ann.Owner); again != rows || logAgain != log {
		t.Errorf("after a stop %d and %d bytes are counted, and %d and %d before", again, logAgain, rows, log)
	}
}

// TestCountsStayTrueUnderRetention saves small states for long: each save removes the oldest one and takes its row. The
// count of the owner's bytes stays the size of what is there.
func TestCountsStayTrueUnderRetention(t *testing.T) {
	t.Parallel()
	s, _ := withQuota(t, 1<<40)
	for n := range 600 {
		_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRoutine, noise(uint64(n), 150+n%100)))
		must(t, err)
		_, _, err = s.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: fmt.Sprint("s", n), Name: "n"})
		must(t, err)
		_, _, err = s.FinishStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: fmt.Sprint("s", n), Result: quoted(strings.Repeat("r", 50))})
		must(t, err)
		if n%50 != 49 {
			continue
		}
		rows, _ := s.Used(ann.Owner)
		there, err := s.StoredBy(ann.Owner)
		must(t, err)
		if diff := rows - there; diff < -2000 || diff > there/5+2000 {
			t.Fatalf("after %d saves %d bytes are counted, and %d are there", n+1, rows, there)
		}
	}
}

// TestCountsAfterAKill: counts that the last daemon did not write, because it
// was killed, are counted again.
func TestCountsAfterAKill(t *testing.T) {
	t.Parallel()
	s, path := withQuota(t, 1<<40)
	for n := range 5 {
		must(t, writings()[0].do(t.Context(), s, ann, n, 50_000))
	}
	rows, log := s.Used(ann.Owner)
	copied := filepath.Join(t.TempDir(), "ckpt.db")
	for _, suffix := range []string{"", "-wal"} { // the state of the disk when the process is killed
		data, err := os.ReadFile(path + suffix)
		must(t, err)
		must(t, os.WriteFile(copied+suffix, data, 0o600))
	}
	o := options(copied, newClock())
	o.MaxOwnerBytes = 1 << 40
	s = openWith(t, o)
	again, logAgain := s.Used(ann.Owner)
	if logAgain != log || again < rows*9/10 || again > rows {
		t.Errorf("%d and %d bytes are counted, and %d and %d before", again, logAgain, rows, log)
	}
}

// TestNoOwnerTakesAllTheRoom: a user may store while the floor stays free, however much of the disk is the user's own.
// Below the floor, a user who stores much is refused, and a user who stores little is not.
func TestNoOwnerTakesAllTheRoom(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.FreeFloor, o.OwnerMinimum = 1<<30, 16<<20
	s := openWith(t, o)
	const total = 24 << 20 // so the floor is 2.4 MiB, and the minimum 0.6 MiB
	var stored int64
	var err error
	for n := 0; err == nil; n++ {
		if n > 100 {
			t.Fatal("there is no end")
		}
		s.SetRoom(max(0, total-stored), total)
		if _, err = s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(n), 300_000))); err == nil {
			stored += 300_000
		}
	}
	wantCode(t, err, ckpt.CodeQuota)
	if text := err.Error(); !strings.Contains(text, "the last 2.5 MB of free space are kept for users who store less than 629.1 kB, and "+ann.Owner+" stores 2") {
		t.Errorf("the refusal says %q", text)
	}
	s.SetRoom(max(0, total-stored), total)
	if state, problems := s.Health(); state != "degraded" || len(problems) != 1 {
		t.Errorf("while an owner is refused: %s, %q", state, problems)
	}
	if stored < 21<<20 || stored > 22<<20 {
		t.Errorf("one owner has stored %d bytes of %d", stored, total)
	}
	s.SetRoom(1_500_000, total)
	if state, problems := s.Health(); state != "degraded" || len(problems) != 1 || !strings.Contains(problems[0], "1.5 MB are free for all users, and limits.free_floor keeps 2.5 MB: users who store more than 629.1 kB (limits.owner_minimum) cannot save") {
		t.Errorf("%s, %q", state, problems)
	}
	for n := range 2 {
		if _, err := s.Save(t.Context(), bob, binary("a", ckpt.KindRecovery, noise(uint64(n), 250_000))); err != nil {
			t.Errorf("a user who stores little, who did not fill the disk: %v", err)
		}
	}
	if _, err := s.Save(t.Context(), bob, binary("a", ckpt.KindRecovery, noise(9, 250_000))); ckpt.CodeOf(err) != ckpt.CodeQuota {
		t.Errorf("more than the minimum: %v", err)
	}
	s.SetRoom(100<<20, total) // there is more room on the disk now
	if _, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(1, 300_000))); err != nil {
		t.Errorf("with more room: %v", err)
	}
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("with more room: %s, %q", state, problems)
	}
}

// TestRefusalsWithoutRoomAreNotAllRecorded: at the quota, refusals do not fill
// the audit log either.
func TestRefusalsWithoutRoomAreNotAllRecorded(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	s, _ := withQuota(t, 1<<20)
	var err error
	for n := 0; err == nil; n++ {
		err = writings()[0].do(t.Context(), s, ann, n, 100_000)
	}
	wantCode(t, err, ckpt.CodeQuota)
	_, before := s.Used(ann.Owner)
	refused := 0
	for n := range 500 {
		if writings()[0].do(t.Context(), s, ann, n, 100_000) != nil {
			refused++
		}
	}
	if _, log := s.Used(ann.Owner); refused < 400 || log > before+5000 {
		t.Errorf("%d refusals took %d bytes of the audit log", refused, log-before)
	}
}

// TestEndsGoOnAtTheQuota: small requests that end something are accepted even
// at the quota.
func TestEndsGoOnAtTheQuota(t *testing.T) {
	t.Parallel()
	s, _ := withQuota(t, 1<<20)
	ref := ckpt.RunRef{Agent: "a", Run: "r"}
	_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "r"})
	must(t, err)
	_, _, err = s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "k", Name: "n", State: ckpt.JSON(`1`)})
	must(t, err)
	r := request("a", ckpt.KindRecovery, `"once"`)
	r.IdempotencyKey = "once"
	first, err := s.Save(t.Context(), ann, r)
	must(t, err)
	for n, size := 0, 100_000; size > 100; n++ {
		if writings()[0].do(t.Context(), s, ann, n, size) != nil {
			size /= 2
		}
	}
	again, err := s.Save(t.Context(), ann, r)
	must(t, err)
	if again.ID != first.ID || !again.Replayed {
		t.Errorf("the answer to a repeated save: %+v", again)
	}
	_, _, err = s.EndOperation(t.Context(), ann, ref, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationSucceeded})
	must(t, err)
	_, _, err = s.EndRun(t.Context(), ann, ref, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	_, _, err = s.EndRun(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.EndRequest{Status: ckpt.RunCompleted, Result: quoted(textOf(1, 300_000))})
	wantCode(t, err, ckpt.CodeQuota)
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 1
	_, err = s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
}

// TestOneOwnerFillsTheDiskFast: an owner who stores much between two looks at the disk still leaves the floor free. The
// disk loses twice what is stored, because the reserve grows with the write-ahead log.
func TestOneOwnerFillsTheDiskFast(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.FreeFloor, o.OwnerMinimum = 1<<30, 16<<20
	s := openWith(t, o)
	const total = 64 << 20 // so the floor is 6.4 MiB
	free := int64(total)
	s.Usage.Disk = func() (int64, error) { return free, nil }
	s.SetRoom(free, total) // the only look
	var err error
	for n := 0; err == nil && free > 0; n++ {
		if _, err = s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(n), 300_000))); err == nil {
			free -= 600_000
		}
	}
	wantCode(t, err, ckpt.CodeQuota)
	if free < 6<<20 || free > 8<<20 {
		t.Errorf("%d bytes are free when the owner is refused", free)
	}
	if _, err := s.Save(t.Context(), bob, binary("a", ckpt.KindRecovery, noise(1, 250_000))); err != nil {
		t.Errorf("a user who stores little: %v", err)
	}
	if state, problems := s.Health(); state != "degraded" {
		t.Errorf("%s, %q", state, problems)
	}
}

// TestARefusalByTheQuotaIsNoLackOfSpace: an owner who is refused for the sake of the owner's quota does not make the daemon degraded,
// although the bytes would not have fit above the floor either.
func TestARefusalByTheQuotaIsNoLackOfSpace(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.FreeFloor, o.OwnerMinimum, o.MaxOwnerBytes = 1<<30, 16<<20, 400_000
	s := openWith(t, o)
	const total, free = 64 << 20, 7_000_000 // so the floor is 6.4 MiB
	s.Usage.Disk = func() (int64, error) { return free, nil }
	s.SetRoom(free, total)
	_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(1, 900_000)))
	wantCode(t, err, ckpt.CodeQuota)
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("%s, %q", state, problems)
	}
}
