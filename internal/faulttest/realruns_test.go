//go:build unix

package faulttest

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// tracesFile is outside the repository because we may not copy its runs.
const tracesFile = "../../../shared/traces/dev-swe.jsonl.gz"

type trace struct {
	ID    string            `json:"id"`
	Steps []json.RawMessage `json:"steps"`
}

// TestRealRuns is the main job on real input: every recorded run of a coding
// agent is replayed as an agent. Its state is all of its steps so far, saved
// after each step. Eight agents run at once.
func TestRealRuns(t *testing.T) {
	traces := readTraces(t)
	d := NewDaemon(t)
	d.Start()
	p := &player{client: d.Client}
	began := time.Now()
	work := make(chan trace)
	var wait sync.WaitGroup
	errs := make([]error, 8)
	for agent := range errs {
		c, name := d.Client(), fmt.Sprintf("coder-%d", agent)
		wait.Go(func() {
			for run := range work {
				errs[agent] = errors.Join(errs[agent], p.play(c, name, run))
			}
		})
	}
	for _, run := range traces {
		work <- run
	}
	close(work)
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("%d runs: %d saves of %.1f MB in %v (%.0f saves a second), %d restores compared byte for byte",
		len(traces), p.saves.Load(), float64(p.bytes.Load())/1e6, took.Round(time.Millisecond), float64(p.saves.Load())/took.Seconds(), p.restores.Load())
	p.checkKept(t, d.Client())
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
}

func readTraces(t *testing.T) []trace {
	t.Helper()
	f, err := os.Open(tracesFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("there are no recorded runs at %s", tracesFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []trace
	for lines := json.NewDecoder(unzipped); lines.More(); {
		var run trace
		if err := lines.Decode(&run); err != nil {
			t.Fatal(err)
		}
		list = append(list, run)
	}
	if isShort() { // make soak plays all of them
		list = list[:len(list)/10]
	}
	return list
}

// player plays runs and counts what it did.
type player struct {
	client                 func() *client.Client
	saves, bytes, restores atomic.Int64

	mu   sync.Mutex
	runs []played
}

type played struct {
	agent, run string
	saves      int
	newest     []string // ids, newest first
}

// play replays one run and restores it in the middle and at the end.
func (p *player) play(c *client.Client, agent string, tr trace) error {
	ctx := context.Background()
	done := played{agent: agent, run: tr.ID}
	state := []byte("[")
	for i, step := range tr.Steps {
		state = append(bytes.TrimSuffix(state, []byte("]")), step...)
		state = append(state, ']')
		saved, err := c.Save(ctx, &ckpt.SaveRequest{
			Agent: agent, Run: tr.ID, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state,
			Step: ckpt.Ref(fmt.Sprintf("step-%d", i)), Labels: ckpt.Labels{"trace": "dev-swe"},
		})
		if err != nil {
			return fmt.Errorf("run %s, step %d: %w", tr.ID, i, err)
		}
		p.saves.Add(1)
		p.bytes.Add(int64(len(state)))
		done.saves++
		done.newest = slices.Insert(done.newest, 0, saved.ID)
		if i%16 == 7 || i == len(tr.Steps)-1 {
			if err := p.compare(c, agent, tr.ID, saved, state); err != nil {
				return err
			}
		}
		state = append(bytes.TrimSuffix(state, []byte("]")), ",\n "...)
	}
	p.mu.Lock()
	p.runs = append(p.runs, done)
	p.mu.Unlock()
	return nil
}

// compare restores the newest state and compares it with what was sent.
func (p *player) compare(c *client.Client, agent, run string, saved *ckpt.Saved, sent []byte) error {
	ck, _, err := c.Restore(context.Background(), ckpt.RestoreRequest{Agent: agent, Run: run, Reason: "the agent starts again"})
	if err != nil {
		return fmt.Errorf("restore of run %s: %w", run, err)
	}
	if ck.ID != saved.ID || !bytes.Equal(ck.State, sent) {
		return fmt.Errorf("run %s: restored %s of %d bytes, not %s of %d bytes as sent", run, ck.ID, len(ck.State), saved.ID, len(sent))
	}
	p.restores.Add(1)
	return nil
}

// checkKept checks what is left of each run against the default policy.
func (p *player) checkKept(t *testing.T, c *client.Client) {
	t.Helper()
	kept := 0
	for _, run := range p.runs {
		list, err := listAll(c, ckpt.CheckpointFilter{Agent: run.agent, Run: run.run, Kind: ckpt.KindRoutine})
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]string, len(list))
		for i, ck := range list {
			ids[i] = ck.ID
		}
		if want := run.newest[:min(3, run.saves)]; !slices.Equal(ids, want) {
			t.Errorf("run %s of %d saves has %q left, not the newest %q", run.run, run.saves, ids, want)
		}
		kept += len(ids)
	}
	longest := slices.MaxFunc(p.runs, func(a, b played) int { return cmp.Compare(a.saves, b.saves) })
	t.Logf("%d checkpoints are left of %d runs, the longest of which saved %d", kept, len(p.runs), longest.saves)
}
