package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// births are runs that the clients of all hosts begin at the same moment, without a resume. The clients know
// only answers.
type births struct {
	mu    sync.Mutex
	runs  []*birth
	codes map[string]int // how often each code was answered
}

// birth is one run of a name. An answer counts as an acknowledgement if the answer says that the engine has the write: a host that begins
// with an empty database does not know yet that the policy of the agent asks for that.
type birth struct {
	run   string
	acked map[string]int // by host, the greatest number that was acknowledged; 0 for a start or an operation
}

// begin lets the clients of all hosts begin one run after the other until ctx ends.
func (b *births) begin(ctx context.Context, hosts map[string]*nemesisHost) {
	for n := 0; ctx.Err() == nil; n++ {
		one := &birth{run: fmt.Sprint("born-", n), acked: map[string]int{}}
		b.mu.Lock()
		b.runs = append(b.runs, one)
		b.mu.Unlock()
		var all sync.WaitGroup
		for _, h := range hosts {
			all.Go(func() { b.client(ctx, h, one, n%3) })
		}
		all.Wait()
		_ = periodic.Wait(ctx, 50*time.Millisecond)
	}
}

// client begins a run by a start, a first save or an operation, and saves in it.
func (b *births) client(ctx context.Context, h *nemesisHost, one *birth, how int) {
	const agent = "/v1/agents/born"
	var a struct{ Code, Durability string }
	status := 0
	switch how {
	case 0:
		status = h.call(ctx, "POST", agent+"/runs", map[string]any{"run": one.run}, &a)
		b.note(h, one, 0, status == http.StatusCreated && a.Durability == "fleet", a.Code)
	case 1:
		status = h.call(ctx, "POST", agent+"/runs/"+one.run+"/operations", map[string]any{"key": "pay", "name": "pay"}, &a)
		b.note(h, one, 0, status == http.StatusCreated && a.Durability == "fleet", a.Code)
	}
	for n := 1; n <= 3 && ctx.Err() == nil; n++ {
		a.Code, a.Durability = "", ""
		status = h.call(ctx, "PUT", fmt.Sprintf("%s/checkpoints/%s?kind=routine&run=%s", agent, uuid.Must(uuid.NewV7()), one.run), map[string]int{"n": n}, &a)
		b.note(h, one, n, status == http.StatusCreated && a.Durability == "fleet", a.Code)
	}
}

func (b *births) note(h *nemesisHost, one *birth, n int, acked bool, code string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if acked {
		one.acked[h.name] = max(one.acked[h.name], n)
	} else if code != "" {
		b.codes[code]++
	}
}

// judge checks that each run was acknowledged by one host, and that what was acknowledged by a host that dies now is
// on the host that goes on.
func (b *births) judge(t *testing.T, hosts map[string]*nemesisHost) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	born := 0
	lost, heir := hosts["one"], hosts["two"]
	var owned []*birth
	for _, one := range b.runs {
		if len(one.acked) > 1 {
			t.Errorf("run %s was acknowledged by several hosts: %v", one.run, one.acked)
		}
		born += len(one.acked)
		if _, is := one.acked[lost.name]; is && len(owned) < 10 {
			owned = append(owned, one)
		}
	}
	t.Logf("%d of %d runs were born, each on one host; refused with %v", born, len(b.runs), b.codes)
	if born == 0 || b.codes["fenced"]+b.codes["conflict"] == 0 {
		t.Error("no run was born, or nobody was refused: this test sees nothing")
	}
	lost.kill()
	for _, one := range owned {
		var plan struct {
			Verdict, Detail string
			Claimed         bool
			Checkpoint      struct{ State struct{ N int } }
		}
		expect.Soon(t, "run "+one.run+" goes on on another host", func() bool {
			heir.call(t.Context(), "POST", "/v1/agents/born/runs/"+one.run+"/resume", map[string]any{"standby": true}, &plan)
			return plan.Claimed || plan.Verdict == "ask"
		})
		var latest struct{ State struct{ N int } }
		heir.call(t.Context(), "GET", "/v1/agents/born/checkpoints/latest?run="+one.run, nil, &latest)
		if latest.State.N < one.acked[lost.name] {
			t.Errorf("run %s goes on from %d, and %d was acknowledged", one.run, latest.State.N, one.acked[lost.name])
		}
	}
}

// copyData copies the database of a host that does not run, with what lies beside it.
func (h *nemesisHost) copyData(from, to string) {
	h.t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "ckpt.db") || !f.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), text, 0o600)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// dropData removes the database of a host that does not run.
func (h *nemesisHost) dropData() {
	h.t.Helper()
	files, err := filepath.Glob(filepath.Join(h.folder, "ckpt.db*"))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			h.t.Fatal(err)
		}
	}
}

// goBack puts an older copy of its database back on the owner of the run. Another host must go on. Then the host
// begins anew with an empty database.
func (n *nemesis) goBack(owner *nemesisHost, claimed func()) {
	n.t.Logf("%s gets an older copy of its database", owner.name)
	old := n.t.TempDir()
	_ = owner.cmd.Process.Signal(syscall.SIGTERM)
	_ = owner.cmd.Wait()
	owner.copyData(owner.folder, old)
	owner.start()
	n.s.progress(n.t, 5) // on this host, or on another one
	owner.kill()
	owner.dropData()
	owner.copyData(old, owner.folder)
	owner.start()
	claimed()
	var s struct{ State string }
	expect.Soon(n.t, owner.name+" says that the engine has another past", func() bool {
		owner.call(n.t.Context(), "GET", "/v1/fleet", nil, &s)
		return s.State == "split"
	})
	owner.kill()
	owner.dropData()
	owner.start()
	owner.setPolicies()
}

// setPolicies sets the policies of the test's agents once the daemon answers.
func (h *nemesisHost) setPolicies() {
	h.t.Helper()
	for _, agent := range []string{"counter", "born"} {
		expect.Soon(h.t, h.name+" has the policy of "+agent, func() bool {
			return h.call(h.t.Context(), "PUT", "/v1/agents/"+agent+"/policy", map[string]any{"durability": "fleet"}, nil) == http.StatusOK
		})
	}
}
