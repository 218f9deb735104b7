//go:build unix

package faulttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// filer is a client that edits a folder and saves it repeatedly.
type filer struct {
	daemon *Daemon
	client *client.Client
	agent  string
	random *rand.Rand

	mu    sync.Mutex
	saved map[string]map[string]string // the files of acknowledged checkpoints
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func entriesOf(files map[string]string) []ckpt.TreeEntry {
	var list []ckpt.TreeEntry
	for _, path := range slices.Sorted(maps.Keys(files)) {
		list = append(list, ckpt.TreeEntry{Path: path, Mode: "0644", Size: int64(len(files[path])), SHA256: sumOf(files[path])})
	}
	return list
}

// work saves until ctx ends. After a failure it starts again with all contents.
func (f *filer) work(ctx context.Context) {
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("src/file%02d.txt", i)] = strings.Repeat(fmt.Sprintf("line %d of a file\n", i), 100)
	}
	base, last := "", map[string]string{}
	for n := 0; ctx.Err() == nil; n++ {
		id, err := f.save(ctx, base, last, files, n)
		if err != nil {
			base, last = "", map[string]string{} // also if it is not known whether the files were stored
			time.Sleep(time.Millisecond)
			continue
		}
		base, last = id, maps.Clone(files)
		path := fmt.Sprintf("src/file%02d.txt", f.random.IntN(30))
		files[path] += fmt.Sprintf("edit %d\n", n)
		if n%10 == 9 {
			files[path] = "short again"
		}
	}
}

// save stores the new contents, the tree of the files, and a checkpoint with
// it.
func (f *filer) save(ctx context.Context, base string, last, files map[string]string, n int) (string, error) {
	var fresh []ckpt.FileContent
	for path, text := range files {
		if before, there := last[path]; !there || before != text {
			c := ckpt.FileContent{SHA256: sumOf(text), Data: []byte(text)}
			if there {
				c.Was = sumOf(before)
			}
			fresh = append(fresh, c)
		}
	}
	if _, err := f.client.PutContents(ctx, f.agent, fresh); err != nil {
		return "", err
	}
	r := ckpt.TreeRequest{Agent: f.agent, Base: base, Root: "/project", Complete: true}
	r.Set, r.Removed = tree.Change(entriesOf(last), entriesOf(files))
	stored, err := f.client.PutTree(ctx, r)
	if err != nil {
		return "", err
	}
	saved, err := f.client.Save(ctx, &ckpt.SaveRequest{Agent: f.agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON,
		State: fmt.Appendf(nil, `{"n":%d}`, n), Trees: []string{stored.ID}})
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved[saved.ID] = maps.Clone(files)
	return stored.ID, nil
}

// check reads back the files of every acknowledged checkpoint.
func (f *filer) check(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for id, files := range f.saved {
		page, err := f.client.Files(ctx, ckpt.FilesFilter{Checkpoint: id})
		if err != nil {
			t.Errorf("the files of checkpoint %s, which was acknowledged: %v", id, err)
			continue
		}
		if got, want := fmt.Sprint(page.Files), fmt.Sprint(entriesOf(files)); got != want {
			t.Errorf("checkpoint %s has other files than were saved with it", id)
		}
	}
	read := map[string]bool{}
	for _, files := range f.saved {
		for path, text := range files {
			sum := sumOf(text)
			if read[sum] {
				continue
			}
			read[sum] = true
			if data, err := f.client.Content(ctx, f.agent, sum); err != nil || string(data) != text {
				t.Errorf("the content of %s does not read back: %v", path, err)
			}
		}
	}
}

// TestKillNineFiles kills the daemon under clients that store files.
func TestKillNineFiles(t *testing.T) {
	beside(t)
	killNineFiles(t, (*rounds+1)/2)
}

func killNineFiles(t *testing.T, rounds int) {
	d, random := NewDaemon(t), newRand(t, 0)
	d.Start()
	var filers []*filer
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var wait sync.WaitGroup
	for i := range 3 {
		f := &filer{daemon: d, client: d.Client(), agent: fmt.Sprintf("filer-%d", i), random: newRand(t, uint64(i)+1), saved: map[string]map[string]string{}}
		filers = append(filers, f)
		keepAll(t, f.client, f.agent)
		wait.Go(func() { f.work(ctx) })
	}
	for range rounds {
		time.Sleep(50*time.Millisecond + time.Duration(random.Int64N(int64(350*time.Millisecond))))
		d.Kill()
		d.Start()
	}
	time.Sleep(200 * time.Millisecond)
	end()
	wait.Wait()
	total := 0
	for _, f := range filers {
		total += len(f.saved)
		f.check(t)
	}
	if total < 3*rounds {
		t.Errorf("only %d checkpoints were acknowledged", total)
	}
	count(t, figures{rounds: rounds})
	note(t, "killed %d times under %d checkpoints with files", rounds, total)
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the last stop ended with exit code %d", code)
	}
	d.Verify()
}
