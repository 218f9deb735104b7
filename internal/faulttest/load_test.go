//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// load is a number of clients that save until they are told to stop. Each client of the first half has its own
// agent. The others share a run.
type load struct {
	t        *testing.T
	daemon   *Daemon
	clients  int
	crashing int           // how many of the clients never repeat a save
	pause    time.Duration // between two saves of one client
	most     int           // the approximate size limit of a state, in bytes
	growing  bool          // each state of a client is the previous one plus a message, like a conversation
	agents   []string
	acked    atomic.Int64

	history *History
	over    context.CancelFunc // stops waiting for answers too
	answers context.Context
	wait    sync.WaitGroup
	end     context.CancelFunc // stops new saves
	errs    chan error
}

func newLoad(t *testing.T, d *Daemon, clients int) *load {
	t.Helper()
	l := &load{t: t, daemon: d, clients: clients, pause: 2 * time.Millisecond, most: 8 << 10}
	for i := range clients {
		l.agents = append(l.agents, l.agent(i))
	}
	l.agents = slices.Compact(l.agents)
	keepAll(t, d.Client(), l.agents...)
	return l
}

func (l *load) agent(client int) string {
	if client < l.clients/2 {
		return fmt.Sprintf("agent-%d", client)
	}
	return "shared"
}

func (l *load) start(h *History) {
	ctx, end := context.WithCancel(context.Background())
	l.history, l.end, l.errs = h, end, make(chan error, l.clients)
	l.answers, l.over = context.WithCancel(context.Background())
	for i := range l.clients {
		c, random := l.daemon.Client(), newRand(l.t, uint64(i)+1)
		l.wait.Go(func() { l.errs <- l.work(ctx, c, i, random) })
	}
	l.t.Cleanup(func() { end(); l.wait.Wait(); l.over() })
}

// goesOn is I8: saves succeed within 5 s after a fault has ended.
func (l *load) goesOn(acked int64, what string) {
	l.t.Helper()
	for began := time.Now(); l.acked.Load() == acked; time.Sleep(time.Millisecond) {
		if time.Since(began) > slack(5*time.Second) {
			l.t.Fatalf("%s: no save succeeded within 5 s of the end of the fault (I8)", what)
		}
	}
}

// reach waits until this many saves have been acknowledged.
func (l *load) reach(acked int64) {
	l.t.Helper()
	for l.acked.Load() < acked {
		before := l.acked.Load()
		l.goesOn(before, "the load")
	}
}

// finish waits until each client has its last answer.
func (l *load) finish() {
	l.t.Helper()
	l.end()
	l.wait.Wait()
	close(l.errs)
	for err := range l.errs {
		if err != nil {
			l.t.Error(err)
		}
	}
}

func (l *load) work(ctx context.Context, c *client.Client, client int, random *rand.Rand) error {
	var said conversation
	for n := 0; ctx.Err() == nil; n++ {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		r := &ckpt.SaveRequest{ID: id.String(), Agent: l.agent(client), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON,
			State: someState(random, fmt.Sprintf("%d/%d", client, n), l.most)}
		if l.growing {
			r.State = said.grow(random, fmt.Sprintf("%d/%d", client, n), l.most)
		}
		if err := l.save(c, r, client >= l.clients-l.crashing); err != nil {
			return fmt.Errorf("client %d, save %d: %w", client, n, err)
		}
		time.Sleep(l.pause)
	}
	return nil
}

// save waits for an answer, and gives up after a time that no daemon may need. It outlasts a lock of one minute.
func (l *load) save(c *client.Client, r *ckpt.SaveRequest, crashing bool) error {
	ctx, cancel := context.WithTimeout(l.answers, 2*time.Minute)
	defer cancel()
	var err error
	if crashing {
		if _, err = l.history.Save(ctx, c, r); err != nil && passes(err) {
			return nil
		}
	} else {
		_, err = l.history.SaveUntilAnswered(ctx, c, r)
	}
	if err == nil {
		l.acked.Add(1)
	}
	return err
}

// abandon stops the clients without waiting for answers that will never come.
func (l *load) abandon() {
	l.end()
	l.over()
	l.wait.Wait()
}

// someState returns JSON that no other save has. Its size varies: sometimes it fits into a row, sometimes it needs
// many pages.
func someState(random *rand.Rand, name string, most int) []byte {
	noise := make([]byte, random.IntN(most/2)+1)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	text, _ := json.Marshal(map[string]any{"save": name, "nonce": random.Uint64(), "noise": noise,
		"text": string(bytes.Repeat([]byte("the same again "), random.IntN(most/40)+1))})
	return text
}

// conversation is a state that grows by one message at a time, and drops its older half when it is too long. The
// daemon stores only the changes.
type conversation struct{ messages []string }

func (c *conversation) grow(random *rand.Rand, name string, most int) []byte {
	noise := make([]byte, 100+random.IntN(400))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	c.messages = append(c.messages, fmt.Sprintf("%s %x", name, noise))
	text, _ := json.Marshal(c.messages)
	if len(text) > most {
		c.messages = slices.Clone(c.messages[len(c.messages)/2:])
	}
	return text
}

// newSave returns a save of a small state that no other save has.
func newSave(t *testing.T, agent string) *ckpt.SaveRequest {
	t.Helper()
	id, err := uuid.NewV7()
	must(t, err)
	return &ckpt.SaveRequest{ID: id.String(), Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{"save":"` + id.String() + `"}`)}
}
