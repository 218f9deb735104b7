package db_test

import (
	stdsql "database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// TestNoTreeIsAChangeToADamagedOne: another program changes a row of a tree, and the daemon may have that tree in
// memory or not. A client that sends its next tree as a change to it is told that the tree does not exist. The
// whole tree that the client then sends can be read back.
func TestNoTreeIsAChangeToADamagedOne(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} {
		t.Run(fmt.Sprintf("fresh=%v", fresh), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ckpt.db")
			s := openWith(t, options(path, newClock()))
			before := folder{"a": "1", "b": "2", "c": "3", "d": "4"}
			base := putFiles(t, s, ann, "coder", "", nil, before)
			saveWith(t, s, ann, "coder", `0`, base)
			now := folder{"a": "1", "b": "2", "c": "3", "d": "5"}
			base, before = putFiles(t, s, ann, "coder", base, before, now), now
			saveWith(t, s, ann, "coder", `1`, base)
			if fresh {
				must(t, s.Close())
				s = openWith(t, options(path, newClock()))
			}
			other, err := stdsql.Open("sqlite", path)
			must(t, err)
			_, err = other.Exec(`DROP TRIGGER tree_files_are_never_changed; UPDATE tree_files SET mode = '0755' WHERE path = 'b'`)
			must(t, err)
			must(t, other.Close())
			now = folder{"a": "6", "b": "2", "c": "3", "d": "5"}
			putContents(t, s, ann, "coder", nil, "6")
			r := ckpt.TreeRequest{Agent: "coder", Base: base, Root: "/home/ann/project", Complete: true}
			r.Set, r.Removed = tree.Change(before.entries(), now.entries())
			_, err = s.PutTree(t.Context(), ann, r)
			if ckpt.CodeOf(err) != ckpt.CodeFilesMissing {
				t.Fatalf("the change to the damaged tree answers %v", err)
			}
			id := putFiles(t, s, ann, "coder", "", nil, now)
			c := saveWith(t, s, ann, "coder", `2`, id)
			sameAs(t, "the files", filesAt(t, s, ann, "coder", c.ID), now)
			page, err := s.FilesOf(t.Context(), ann, ckpt.FilesFilter{Checkpoint: c.ID})
			must(t, err)
			sameAs(t, "the list", page.Files, now.entries())
		})
	}
}

// TestTreesOneAfterTheOther makes random changes to the folders of three agents. Each tree is sent as a change to
// some earlier tree. All can be read back, even in a store that was just opened.
func TestTreesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	random := rand.New(rand.NewPCG(21, 2))
	type stored struct {
		id, checkpoint string
		files          folder
	}
	all := map[string][]stored{}
	for n := range 150 {
		agent := string("abc"[random.IntN(3)])
		before := stored{files: folder{}}
		if list := all[agent]; len(list) > 0 {
			before = list[len(list)-1]
			if random.IntN(4) == 0 {
				before = list[random.IntN(len(list))]
			}
		}
		now := maps.Clone(before.files)
		for range 1 + random.IntN(4) {
			path := fmt.Sprintf("d%d/f%d", random.IntN(3), random.IntN(12))
			if random.IntN(4) == 0 {
				delete(now, path)
			} else {
				now[path] = fmt.Sprint(random.IntN(20))
			}
		}
		next := stored{id: putFiles(t, s, ann, agent, before.id, before.files, now), files: now}
		next.checkpoint = saveWithAll(t, s, agent, n, next.id)
		all[agent] = append(all[agent], next)
		if random.IntN(40) == 0 {
			must(t, s.Close())
			s = openWith(t, options(path, newClock()))
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(all)) {
		for i, one := range all[agent] {
			sameAs(t, fmt.Sprintf("files of checkpoint %d of %s", i, agent), filesAt(t, s, ann, agent, one.checkpoint), one.files)
		}
	}
}

// saveWithAll saves into a separate run, so that nothing is pruned.
func saveWithAll(t *testing.T, s *db.Store, agent string, n int, id string) string {
	t.Helper()
	r := request(agent, ckpt.KindRoutine, `0`)
	r.Run, r.Trees = fmt.Sprintf("r%d", n), []string{id}
	c, err := s.Save(t.Context(), ann, r)
	must(t, err)
	return c.ID
}

// TestListsDoNotRepeatWhatHasChanged: 150 trees of 200 files with one change each take far fewer rows than trees
// that all repeat everything that has changed since the first one. All can be read back.
func TestListsDoNotRepeatWhatHasChanged(t *testing.T) {
	t.Parallel()
	s := openWith(t, options(filepath.Join(t.TempDir(), "ckpt.db"), newClock()))
	f := folder{}
	for i := range 200 {
		f[fmt.Sprintf("d%d/f%d", i%10, i)] = "0"
	}
	checkpoints, all := []string{}, []folder{}
	base, before := "", folder{}
	for n := range 150 {
		f[fmt.Sprintf("d%d/f%d", n%10, n)] = fmt.Sprint(n)
		base, before = putFiles(t, s, ann, "coder", base, before, f), maps.Clone(f)
		checkpoints, all = append(checkpoints, saveWithAll(t, s, "coder", n, base)), append(all, before)
	}
	var rows, whole int
	must(t, s.RO.Get(&rows, `SELECT count(*) FROM tree_files`))
	must(t, s.RO.Get(&whole, `SELECT count(*) FROM trees WHERE base IS NULL`))
	if rows > 4000 || whole > 10 {
		t.Errorf("%d rows, %d whole lists", rows, whole)
	}
	for n := 0; n < len(all); n += 7 {
		sameAs(t, fmt.Sprintf("files of checkpoint %d", n), filesAt(t, s, ann, "coder", checkpoints[n]), all[n])
	}
}

// TestContentsThatAreAlike: files that share most of their bytes, but are not declared as versions of one another,
// take little more space than one of them, whether they are stored together or one after the other. All can be read
// back, even after the first one was removed, and nothing stays in the end.
func TestContentsThatAreAlike(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(8, 8))
	block := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "package %x = %x\n", random.Uint64(), random.Uint64())
		}
		return b.String()
	}
	start, middle, end := block(30_000), block(30_000), block(30_000)
	f := folder{"other": block(50_000)}
	for i := range 6 {
		f[fmt.Sprintf("p%d/lock", i)] = start + block(1000) + middle + block(500) + end
	}
	for _, together := range []bool{true, false} {
		t.Run(fmt.Sprintf("together=%v", together), func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			s := openWith(t, options(filepath.Join(t.TempDir(), "ckpt.db"), clock))
			one := putContents(t, s, ann, "alone", nil, f["p0/lock"], f["other"])
			var bytes int64
			if together {
				bytes = putContents(t, s, ann, "coder", nil, slices.Collect(maps.Values(f))...).StoredBytes
			} else {
				for _, path := range slices.Sorted(maps.Keys(f)) {
					bytes += putContents(t, s, ann, "coder", nil, f[path]).StoredBytes
				}
			}
			if bytes > one.StoredBytes+5*2500 {
				t.Errorf("%d bytes are stored, and %d for one of the files and the other one", bytes, one.StoredBytes)
			}
			c := saveWith(t, s, ann, "coder", `0`, putFiles(t, s, ann, "coder", "", nil, f))
			sameAs(t, "all files", filesAt(t, s, ann, "coder", c.ID), f)
			less := maps.Clone(f)
			delete(less, "p0/lock") // the first one, if they were stored one after the other
			saveWith(t, s, ann, "coder", `1`, putFiles(t, s, ann, "coder", "", nil, less))
			for range 3 {
				saveWith(t, s, ann, "coder", `2`, putFiles(t, s, ann, "coder", "", nil, less))
			}
			clock.add(3 * time.Hour)
			sweep(t, s)
			newest, err := s.Latest(t.Context(), ann, ckpt.CheckpointFilter{Agent: "coder", Run: ckpt.MainRun}, false)
			must(t, err)
			sameAs(t, "the files without the first", filesAt(t, s, ann, "coder", newest.ID), less)
			var broken []string
			must(t, s.RO.Select(&broken, `SELECT rule || ' ' || subject || ' ' || detail FROM audit_violations`))
			sameAs(t, "violations", broken, nil)
			_, err = s.Erase(t.Context(), ann, "coder")
			must(t, err)
			var left int
			must(t, s.RO.Get(&left, `SELECT count(*) FROM contents c JOIN agents a ON a.id = c.agent_id WHERE a.name = 'coder'`))
			if left > 0 {
				t.Errorf("%d contents are left", left)
			}
		})
	}
}

// TestBytesOfFilesAreSeen: the space that files take is in the status, in the list of agents and in the auditor's
// view, only for their owner. It is gone when the agent is erased.
func TestBytesOfFilesAreSeen(t *testing.T) {
	t.Parallel()
	s := openWith(t, options(filepath.Join(t.TempDir(), "ckpt.db"), newClock()))
	stored := putContents(t, s, ann, "coder", nil, "one file", strings.Repeat("another one ", 500)).StoredBytes
	saveWith(t, s, ann, "coder", `0`, putFiles(t, s, ann, "coder", "", nil, folder{"a": "one file"}))
	save(t, s, ann, "other", ckpt.KindRoutine, `0`)
	save(t, s, bob, "coder", ckpt.KindRoutine, `0`)
	check := func(sc ckpt.Scope, coder int64) {
		t.Helper()
		page, err := s.Agents(t.Context(), sc, ckpt.AgentFilter{})
		must(t, err)
		var all int64
		for _, a := range page.Agents {
			want := int64(0)
			if a.Agent == "coder" {
				want = coder
			}
			if a.FilesBytes != want {
				t.Errorf("the files of %s take %d bytes, not %d", a.Agent, a.FilesBytes, want)
			}
			all += a.FilesBytes
		}
		status, err := s.Status(t.Context(), sc)
		must(t, err)
		if status.Files != all {
			t.Errorf("the status says %d bytes, the agents say %d", status.Files, all)
		}
		var seen int64
		must(t, s.RO.Get(&seen, `SELECT coalesce(sum(files_bytes), 0) FROM audit_agents WHERE owner = ?`, sc.Caller.Owner))
		if seen != all {
			t.Errorf("audit_agents says %d bytes, the agents say %d", seen, all)
		}
	}
	check(ann, stored)
	check(bob, 0)
	gone, err := s.Erase(t.Context(), ann, "coder")
	must(t, err)
	if gone.FilesBytes != stored {
		t.Errorf("the erasure says %d bytes, not %d", gone.FilesBytes, stored)
	}
	check(ann, 0)
}
