package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// filesModel is the expected content: a folder, and the files of each checkpoint.
type filesModel struct {
	*filesWorld
	random      *rand.Rand
	folder      map[string]string
	checkpoints map[string]map[string]string
	before      map[string]string // what an undo restores; nil if there is nothing to undo
	edited      bool              // since the last restore or snap
	pinned      map[string]bool   // checkpoints that a killed restore may have left pinned
	done        []string
}

// TestFilesModel applies random actions of people and accidents to a folder and its checkpoints, with the real
// program and daemon, and compares the result with a small model. -kill-seed replays one sequence.
func TestFilesModel(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	m := &filesModel{
		filesWorld: newFilesWorld(t), random: rand.New(rand.NewPCG(*killSeed, 21)), folder: map[string]string{}, checkpoints: map[string]map[string]string{},
		pinned: map[string]bool{},
	}
	t.Logf("-kill-seed %d", *killSeed)
	defer func() {
		if t.Failed() {
			t.Logf("done: %s", strings.Join(m.done, "\n      "))
		}
	}()
	m.do("policy", "set", "*", "routine_keep=0")
	steps := 60
	if *long {
		steps = 1500
	}
	for range steps {
		switch n := m.random.IntN(100); {
		case n < 40:
			m.edit()
		case n < 60:
			m.snap()
		case n < 72:
			m.restore(false)
		case n < 82:
			m.restore(true)
		case n < 90:
			m.undo()
		case n < 94:
			m.remove()
		case n < 98:
			m.crash()
		default:
			m.erase()
		}
		if here := m.has(); !cmp.Equal(here, m.folder) {
			t.Fatalf("the folder is not what it must be:\n%s", cmp.Diff(m.folder, here))
		}
	}
	m.compare()
	m.do("verify", "--db", filepath.Join(m.dir, "ckpt.db"))
}

func (m *filesModel) note(format string, args ...any) {
	m.done = append(m.done, fmt.Sprintf(format, args...))
}

// edit changes a few files. A file can replace a folder, and a folder a file.
func (m *filesModel) edit() {
	for range 1 + m.random.IntN(4) {
		path := []string{"a", "b/c", "b/d", "b/d/e", "f/g/h", "f/i", "j", "k/l", "k"}[m.random.IntN(9)]
		if m.random.IntN(3) == 0 {
			if _, is := m.folder[path]; is {
				must(m.t, os.Remove(filepath.Join(m.root, path)))
				delete(m.folder, path)
				m.note("remove %s", path)
			}
			continue
		}
		full := filepath.Join(m.root, path)
		for other := range maps.Clone(m.folder) {
			if strings.HasPrefix(path, other+"/") || strings.HasPrefix(other, path+"/") {
				delete(m.folder, other)
				must(m.t, os.Remove(filepath.Join(m.root, other)))
			}
		}
		if info, err := os.Lstat(full); err == nil && info.IsDir() {
			must(m.t, os.RemoveAll(full)) // only empty folders are left in it
		}
		text := strings.Repeat(fmt.Sprintf("line %d\n", m.random.IntN(5)), 1+m.random.IntN(400))
		must(m.t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(m.t, os.WriteFile(full, []byte(text), 0o644))
		m.folder[path] = text
		m.note("write %s", path)
	}
	m.edited, m.before = true, nil // an undo would stop at the files that have changed since
}

func (m *filesModel) snap() string {
	id := strings.Fields(m.do("files", "snap", m.root, "--agent", "a"))[0]
	m.checkpoints[id] = maps.Clone(m.folder)
	m.note("snap %s", id)
	m.edited = false
	return id
}

func (m *filesModel) some() string {
	ids := slices.Sorted(maps.Keys(m.checkpoints))
	if len(ids) == 0 {
		return m.snap()
	}
	return ids[m.random.IntN(len(ids))]
}

// restore restores a checkpoint, and may be killed in the middle. Changed files are kept first, so nothing prevents
// the restore.
func (m *filesModel) restore(killed bool) {
	id := m.some()
	if m.edited {
		m.snap()
	}
	was, is := m.checkpoints[id], maps.Clone(m.folder)
	args := []string{"files", "restore", id, "--yes", "--remove", "--root", m.root}
	if !killed {
		m.note("restore %s", id)
		m.do(args...)
		m.restored(was, is)
		return
	}
	cmd := exec.Command("ckptsidecar", args...)
	cmd.Env, cmd.Dir = m.env, m.root
	must(m.t, cmd.Start())
	timer := time.AfterFunc(time.Duration(m.random.IntN(120))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	timer.Stop()
	m.pinned[id] = true
	m.oldOrNew(was, is, "after a kill")
	how, want := "--continue", was
	if m.random.IntN(2) == 0 {
		how, want = "--back", is
	}
	out, code := m.command("ckptsidecar", "files", "restore", how, "--root", m.root)
	m.note("restore %s, killed, %s: %d", id, how, code)
	switch here := m.has(); {
	case code == 0 && cmp.Equal(here, want):
		m.restored(want, is)
		if how == "--back" {
			m.before = nil // an undo of an unfinished restore is not tested here
		}
	case code == 3 && cmp.Equal(here, is): // it was killed before it began
		m.before, m.edited = nil, true
	case code == 3 && cmp.Equal(here, was): // or after it was done
		m.restored(was, is)
		m.edited = true // it is not known whether the checkpoint after it was saved
	default:
		m.t.Fatalf("%s ended with %d: %s\n%s", how, code, out, cmp.Diff(want, here))
	}
}

func (m *filesModel) restored(now, before map[string]string) {
	if !cmp.Equal(now, before) { // otherwise nothing was done, and an undo undoes the previous restore
		m.before = before
	}
	m.folder, m.edited = maps.Clone(now), false
}

// undo undoes the last restore. A second undo undoes the first one.
func (m *filesModel) undo() {
	if m.before == nil {
		return
	}
	m.note("undo")
	now := maps.Clone(m.folder)
	m.do("files", "undo", m.root)
	if want := m.before; !cmp.Equal(m.has(), want) {
		m.t.Fatalf("after an undo:\n%s", cmp.Diff(want, m.has()))
	}
	m.restored(m.before, now)
}

// remove deletes a checkpoint.
func (m *filesModel) remove() {
	if len(m.checkpoints) < 2 {
		return
	}
	id := m.some()
	m.note("delete %s", id)
	if m.pinned[id] {
		m.do("unpin", id)
	}
	m.do("delete", id)
	if id == slices.Max(slices.Collect(maps.Keys(m.checkpoints))) {
		m.edited = true // perhaps no checkpoint has the folder as it is now
	}
	delete(m.checkpoints, id)
}

// crash kills the daemon and starts it again.
func (m *filesModel) crash() {
	m.note("kill the daemon")
	must(m.t, m.daemon.Process.Kill())
	_ = m.daemon.Wait()
	m.serve()
	m.compare()
}

// erase removes all of the agent. The folder stays, and can be kept again.
func (m *filesModel) erase() {
	if len(m.checkpoints) == 0 {
		return
	}
	m.note("erase")
	m.do("erase", "a", "--yes")
	for id := range m.checkpoints {
		if out, code := m.command("ckptsidecar", "files", "restore", id, "--root", m.root); code != 3 {
			m.t.Fatalf("a checkpoint of an erased agent: exit %d, %s", code, out)
		}
	}
	m.checkpoints, m.before = map[string]map[string]string{}, nil
	m.snap()
}

// compare reads the files of all checkpoints and compares them with the model.
func (m *filesModel) compare() {
	m.t.Helper()
	for id, want := range m.checkpoints {
		page, err := m.client.Files(m.t.Context(), ckpt.FilesFilter{Checkpoint: id})
		must(m.t, err)
		got := map[string]string{}
		for _, e := range page.Files {
			data, err := m.client.Content(m.t.Context(), "a", e.SHA256)
			must(m.t, err)
			got[e.Path] = string(data)
		}
		if !cmp.Equal(got, want) {
			m.t.Fatalf("the files of checkpoint %s:\n%s", id, cmp.Diff(want, got))
		}
	}
}
