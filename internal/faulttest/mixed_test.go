//go:build unix

package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// mixed is a set of clients that use every feature. Each client has its own
// model of what must be stored: what retention keeps, events, steps,
// operations, fences. After any fault of the daemon, a client repeats its
// request until it is answered.
type mixed struct {
	t     *testing.T
	d     *Daemon
	done  atomic.Int64 // requests that were acknowledged
	end   context.CancelFunc
	wait  sync.WaitGroup
	pause time.Duration
	each  []mixer
	keep  int // how many routine checkpoints the keeper's policy keeps

	mu       sync.Mutex
	problems []string
}

// mixer is one of those clients.
type mixer interface {
	play(ctx context.Context, m *mixed, c *client.Client, random *rand.Rand) error // does one request
	check(m *mixed, c *client.Client) error                                        // compares the result with the model
}

// startMixed starts this many sets of clients, one client of each sort per set.
func startMixed(t *testing.T, d *Daemon, sets int, pause time.Duration) *mixed {
	t.Helper()
	var each []mixer
	for i := range sets {
		each = append(each, &keeper{agent: fmt.Sprintf("keeper-%d", i)}, &logger{agent: fmt.Sprintf("logger-%d", i)},
			&stepper{agent: fmt.Sprintf("stepper-%d", i)}, &fencer{agent: fmt.Sprintf("fencer-%d", i)})
	}
	for i := range sets { // suspect checkpoints would need another model
		unwatched(t, d.Client(), fmt.Sprintf("keeper-%d", i), fmt.Sprintf("stepper-%d", i))
	}
	return runMixed(t, d, pause, each)
}

// runMixed starts these clients.
func runMixed(t *testing.T, d *Daemon, pause time.Duration, each []mixer) *mixed {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	m := &mixed{t: t, d: d, end: end, pause: pause, keep: ckpt.DefaultPolicy().RoutineKeep, each: each}
	for i, p := range m.each {
		c, random := d.Client(), newRand(t, uint64(1000+i))
		m.wait.Go(func() {
			for ctx.Err() == nil {
				if err := p.play(ctx, m, c, random); err != nil && ctx.Err() == nil {
					m.problem("%T %d: %v", p, i, err)
					return
				}
				m.done.Add(1)
				time.Sleep(m.pause)
			}
		})
	}
	t.Cleanup(func() { end(); m.wait.Wait() })
	return m
}

// unwatched sets the default policy without detectors.
func unwatched(t *testing.T, c *client.Client, agents ...string) {
	t.Helper()
	p := ckpt.DefaultPolicy()
	p.Sensitivity = ckpt.SensitivityOff
	for _, agent := range agents {
		_, err := c.SetPolicy(context.Background(), agent, p)
		must(t, err)
	}
}

func (m *mixed) problem(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// finish waits until each client has its last answer, and compares the daemon
// with the models.
func (m *mixed) finish() {
	m.t.Helper()
	m.end()
	m.wait.Wait()
	c := m.d.Client()
	for _, p := range m.each {
		if err := p.check(m, c); err != nil {
			m.problem("%T: reading back: %v", p, err)
		}
	}
	for _, p := range m.problems[:min(20, len(m.problems))] {
		m.t.Error(p)
	}
	count(m.t, figures{acked: int(m.done.Load())})
	m.t.Logf("%d acts of mixed clients, %d problems", m.done.Load(), len(m.problems))
}

// until repeats the same request as long as the answer can change.
func until(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !passes(err) {
			return err
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func newKey() string { return uuid.Must(uuid.NewV7()).String() }

// keeper saves under the default policy: the newest few routine checkpoints
// stay, and all recovery checkpoints that are young enough stay (I6).
type keeper struct {
	agent    string
	routine  []int64 // acknowledged sequence numbers
	recovery []string
	lately   []string // ids
}

func (k *keeper) play(_ context.Context, m *mixed, c *client.Client, random *rand.Rand) error {
	r := &ckpt.SaveRequest{ID: newKey(), Agent: k.agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON,
		State: someState(random, k.agent+fmt.Sprint(len(k.routine)), 12<<10)}
	if random.IntN(40) == 0 {
		r.Kind = ckpt.KindRecovery
	}
	var saved *ckpt.Saved
	err := until(func(ctx context.Context) (err error) { saved, err = c.Save(ctx, r); return err })
	if err != nil {
		return err
	}
	if r.Kind == ckpt.KindRecovery {
		k.recovery = append(k.recovery, saved.ID)
		return nil
	}
	k.routine, k.lately = append(k.routine, saved.Seq), append(k.lately, saved.ID)
	want := []string{}
	if len(k.lately) > m.keep {
		want, k.lately = k.lately[:1], k.lately[1:]
	}
	if !slices.Equal(saved.Pruned, want) {
		m.problem("I6: number %d of %s took the place of %v, and should have of %v", saved.Seq, k.agent, saved.Pruned, want)
	}
	if random.IntN(20) == 0 { // checks something that must be there
		return k.look(m, c, k.lately[random.IntN(len(k.lately))])
	}
	return nil
}

func (k *keeper) look(m *mixed, c *client.Client, id string) error {
	err := until(func(ctx context.Context) error { _, err := c.State(ctx, id); return err })
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		m.problem("I6: %s of %s is among the newest %d and is gone", id, k.agent, m.keep)
		return nil
	}
	return err
}

func (k *keeper) check(m *mixed, c *client.Client) error {
	list, err := listAll(c, ckpt.CheckpointFilter{Agent: k.agent})
	if err != nil {
		return err
	}
	var routine []int64
	there := map[string]bool{}
	for _, ck := range list {
		there[ck.ID] = true
		if ck.Kind == ckpt.KindRoutine {
			routine = append(routine, ck.Seq)
		}
	}
	slices.Sort(routine)
	if want := k.routine[max(0, len(k.routine)-m.keep):]; !slices.Equal(routine, want) {
		m.problem("I6: %s has the routine checkpoints %v, and should have %v", k.agent, routine, want)
	}
	for _, id := range k.recovery {
		if !there[id] {
			m.problem("I6: the recovery checkpoint %s of %s is gone", id, k.agent)
		}
	}
	return nil
}

// logger appends events. Each batch is stored once, in order (I1, I3, I4).
type logger struct {
	agent string
	sent  []string
}

func (l *logger) play(_ context.Context, _ *mixed, c *client.Client, random *rand.Rand) error {
	var batch []ckpt.NewEvent
	for range 1 + random.IntN(3) {
		token := fmt.Sprintf("%d-%x", len(l.sent)+len(batch), random.Uint64())
		batch = append(batch, ckpt.NewEvent{Type: token, Payload: ckpt.JSON(fmt.Sprintf(`{"token":%q}`, token))})
	}
	key := newKey()
	err := until(func(ctx context.Context) error {
		_, _, err := c.Append(ctx, ckpt.RunRef{Agent: l.agent}, batch, key)
		return err
	})
	for _, e := range batch {
		l.sent = append(l.sent, e.Type)
	}
	return err
}

func (l *logger) check(m *mixed, c *client.Client) error {
	var found []string
	for after := int64(0); ; {
		page, err := c.Events(context.Background(), ckpt.RunRef{Agent: l.agent}, after, ckpt.MaxLimit)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if e.Seq != after+1 {
				m.problem("I4: after event %d of %s comes %d", after, l.agent, e.Seq)
			}
			found, after = append(found, e.Type), e.Seq
		}
		if len(page.Events) == 0 {
			break
		}
	}
	if !slices.Equal(found, l.sent) {
		m.problem("I3: %s has sent %d events and has %d; the first that differs is number %d", l.agent, len(l.sent), len(found), firstOther(found, l.sent)+1)
	}
	return nil
}

func firstOther(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// stepper runs steps and operations. A step that succeeded is not run again.
type stepper struct {
	agent string
	steps map[string]string // the result of each key
	ops   map[string]ckpt.OperationStatus
}

func (s *stepper) play(_ context.Context, m *mixed, c *client.Client, random *rand.Rand) error {
	if s.steps == nil {
		s.steps, s.ops = map[string]string{}, map[string]ckpt.OperationStatus{}
	}
	if random.IntN(3) == 0 {
		return s.operate(c, random)
	}
	key, ref := fmt.Sprintf("step-%d", len(s.steps)), ckpt.RunRef{Agent: s.agent}
	result := fmt.Sprintf(`{"n":%d}`, random.Uint64()>>12)
	begin := ckpt.StepRequest{Key: key, Name: "work", IdempotencyKey: newKey()}
	if err := until(func(ctx context.Context) error { _, _, err := c.BeginStep(ctx, ref, begin); return err }); err != nil {
		return err
	}
	finish := ckpt.StepRequest{Key: key, Status: ckpt.StepSucceeded, Result: ckpt.JSON(result), IdempotencyKey: newKey()}
	if err := until(func(ctx context.Context) error { _, _, err := c.FinishStep(ctx, ref, finish); return err }); err != nil {
		return err
	}
	s.steps[key] = result
	begin.IdempotencyKey = newKey()
	return until(func(ctx context.Context) error {
		again, _, err := c.BeginStep(ctx, ref, begin)
		if err == nil && (again.Status != ckpt.StepSucceeded || !sameJSON(string(again.Result), result)) {
			m.problem("I1: step %s of %s had succeeded with %s, and is %s with %s", key, s.agent, result, again.Status, again.Result)
		}
		return err
	})
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

func (s *stepper) operate(c *client.Client, random *rand.Rand) error {
	key, ref := fmt.Sprintf("op-%d", len(s.ops)), ckpt.RunRef{Agent: s.agent}
	begin := ckpt.OperationRequest{Key: key, Name: "push", State: someState(random, key, 6<<10), IdempotencyKey: newKey()}
	if err := until(func(ctx context.Context) error { _, _, err := c.BeginOperation(ctx, ref, begin); return err }); err != nil {
		return err
	}
	end := ckpt.OperationEnd{Key: key, Status: ckpt.OperationSucceeded, IdempotencyKey: newKey()}
	if random.IntN(3) == 0 {
		end.Status, end.Error = ckpt.OperationFailed, "no"
	}
	s.ops[key] = end.Status
	return until(func(ctx context.Context) error { _, _, err := c.EndOperation(ctx, ref, end); return err })
}

func (s *stepper) check(m *mixed, c *client.Client) error {
	ref, found := ckpt.RunRef{Agent: s.agent}, 0
	for f := (ckpt.ListFilter{Limit: ckpt.MaxLimit}); ; {
		page, err := c.Steps(context.Background(), ref, f)
		if err != nil {
			return err
		}
		for _, step := range page.Steps {
			if found++; s.steps[step.Key] != "" && (step.Status != ckpt.StepSucceeded || !sameJSON(string(step.Result), s.steps[step.Key])) {
				m.problem("I1: step %s of %s is %s with %s, and was answered with %s", step.Key, s.agent, step.Status, step.Result, s.steps[step.Key])
			}
		}
		if page.Next == "" {
			break
		}
		f.Before = string(page.Next)
	}
	if found < len(s.steps) {
		m.problem("I1: %d of %d steps of %s are there", found, len(s.steps), s.agent)
	}
	list, err := listAll(c, ckpt.CheckpointFilter{Agent: s.agent, Kind: ckpt.KindPreOperation})
	for _, ck := range list {
		if s.ops[string(ck.Operation)] == ckpt.OperationSucceeded && !ck.Pinned && len(list) > 1 && ck.ID != list[0].ID {
			m.problem("I6: the checkpoint before operation %s of %s is there, and it succeeded", ck.Operation, s.agent)
		}
	}
	return err
}

// fencer takes a run over from itself. The previous epoch must not write any
// more.
type fencer struct {
	agent  string
	epochs int64
}

func (f *fencer) play(_ context.Context, m *mixed, c *client.Client, random *rand.Rand) error {
	before, err := f.resume(c)
	if err != nil {
		return err
	}
	if err := f.save(c, before, random); err != nil {
		return err
	}
	now, err := f.resume(c)
	if err != nil {
		return err
	}
	if now <= before || before <= f.epochs {
		m.problem("fence: the epochs of %s are %d, %d, %d", f.agent, f.epochs, before, now)
	}
	f.epochs = now
	if err := f.save(c, before, random); ckpt.CodeOf(err) != ckpt.CodeFenced {
		m.problem("fence: %s is at epoch %d, and a write of epoch %d was answered with %v", f.agent, now, before, err)
	}
	return f.save(c, now, random)
}

func (f *fencer) resume(c *client.Client) (epoch int64, err error) {
	r := ckpt.ResumeRequest{Agent: f.agent, Force: true, Reason: "taken over", IdempotencyKey: newKey()}
	err = until(func(ctx context.Context) error {
		plan, _, err := c.Resume(ctx, r)
		if err == nil {
			epoch = plan.Epoch
		}
		return err
	})
	return epoch, err
}

func (f *fencer) save(c *client.Client, epoch int64, random *rand.Rand) error {
	r := &ckpt.SaveRequest{ID: newKey(), Agent: f.agent, Kind: ckpt.KindRoutine, Epoch: &epoch, ContentType: ckpt.ContentTypeJSON,
		State: someState(random, strings.Repeat("f", random.IntN(9)), 2<<10)}
	return until(func(ctx context.Context) error { _, err := c.Save(ctx, r); return err })
}

func (f *fencer) check(*mixed, *client.Client) error { return nil }
