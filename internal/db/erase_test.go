package db_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// plant leaves a canary in everything that an agent can send.
func plant(t *testing.T, s *db.Store, sc ckpt.Scope, agent, canary string, i int) {
	t.Helper()
	ref := ckpt.RunRef{Agent: agent}
	r := request(agent, ckpt.KindRoutine, fmt.Sprintf(`{"n":%d,"inline":"%s%s"}`, i, canary, strings.Repeat("i", i%7*500)))
	r.Labels, r.Metadata = ckpt.Labels{"l": canary + "-label"}, []byte(`{"m":"`+canary+`-metadata"}`)
	r.Program = &ckpt.Program{Source: canary + "-program"}
	_, err := s.Save(t.Context(), sc, r)
	must(t, err)
	_, err = s.Save(t.Context(), sc, binary(agent, ckpt.KindRoutine, append(noise(uint64(i), 5000+i%5*4000), canary+"-segment"...)))
	must(t, err)
	_, _, err = s.FinishStep(t.Context(), sc, ref, ckpt.StepRequest{Key: fmt.Sprint(i), Name: "n", Args: []byte(`"` + canary + `-args"`), Status: ckpt.StepSucceeded, Result: []byte(`"` + canary + `-result"`)})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		_, _, err = s.BeginStep(t.Context(), sc, ref, ckpt.StepRequest{Key: fmt.Sprint(i), Name: "n", Args: []byte(`"` + canary + `-args"`)})
	}
	must(t, err)
	_, _, err = s.Append(t.Context(), sc, ref, []ckpt.NewEvent{{Type: "t", Payload: []byte(`"` + canary + `-event"`)}}, "")
	must(t, err)
}

// TestEraseLeavesNothing: the raw files contain nothing that the erased agent
// had saved, deleted or had pruned, and other agents' data is intact.
func TestEraseLeavesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for i := range 25 {
		plant(t, s, ann, "gone", "canary-of-the-erased", i)
		plant(t, s, ann, "kept", "canary-of-the-kept", i)
		plant(t, s, bob, "gone", "canary-of-bob", i)
		if i%8 == 0 {
			s.CopyWAL()
		}
	}
	kept := seqs(t, s, ann, "kept")
	erased, err := s.Erase(t.Context(), ann, "gone")
	must(t, err)
	if erased.Agent != "gone" || erased.Owner != ann.Owner || erased.Checkpoints != 3 || erased.Runs != 1 || erased.StoredBytes == 0 {
		t.Errorf("%+v", erased)
	}
	_, err = s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "gone"})
	wantCode(t, err, ckpt.CodeNotFound)
	_, err = s.Erase(t.Context(), ann, "gone")
	wantCode(t, err, ckpt.CodeNotFound)
	if got := seqs(t, s, ann, "kept"); !slices.Equal(got, kept) {
		t.Errorf("another agent has %v, had %v", got, kept)
	}
	must(t, s.Close())
	found := 0
	for _, file := range []string{path, path + "-wal"} {
		b, err := os.ReadFile(file)
		must(t, err)
		for at := bytes.Index(b, []byte("canary-of-the-erased")); at >= 0; at = bytes.Index(b, []byte("canary-of-the-erased")) {
			if found++; found < 5 {
				t.Errorf("%s holds at %d, in page %d: %q", filepath.Base(file), at, at/4096+1, b[at:at+30])
			}
			b[at] = 'x'
		}
		if !bytes.Contains(b, []byte("canary-of-bob")) && file == path {
			t.Error("bob's are gone")
		}
	}
	if found > 0 {
		t.Errorf("%d traces of the erased agent", found)
	}
	sound(t, path)
	s = openWith(t, options(path, newClock()))
	if c := save(t, s, ann, "gone", ckpt.KindRoutine, `"anew"`); c.Seq != 1 || c.Parent != "" {
		t.Errorf("the agent begun anew: %+v", c)
	}
}

// TestEraseBesideAReader: a reader with an open snapshot keeps the log alive.
// The answer says that the agent is erased and that traces remain.
func TestEraseBesideAReader(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.WriteTimeout = 300 * 1e6
	s := openWith(t, o)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sh := sqlite3Shell(t, o.Path, "BEGIN; SELECT count(*) FROM checkpoints;", "-readonly")
	_, err := s.Erase(t.Context(), ann, "a")
	wantCode(t, err, ckpt.CodeBusy)
	if e := ckpt.AsError(err); e.Outcome != ckpt.OutcomeSaved || !strings.Contains(e.Message, "traces remain") {
		t.Errorf("the answer: %+v", e)
	}
	_, err = s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a"})
	wantCode(t, err, ckpt.CodeNotFound)
	sh.close()
	save(t, s, ann, "a", ckpt.KindRoutine, `2`)
	_, err = s.Erase(t.Context(), ann, "a")
	must(t, err)
	_, err = s.Erase(t.Context(), ann, "/")
	wantCode(t, err, ckpt.CodeInvalid)
}
