package notify

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/outbox"
)

// waiting is a queue in memory. All its deliveries are due.
type waiting struct {
	mu        sync.Mutex
	due       []outbox.Delivery
	changed   chan struct{}
	delivered chan string
}

func (q *waiting) add(hook, id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = append(q.due, outbox.Delivery{Notice: int64(len(q.due)), Hook: hook, ID: id, Type: string(ckpt.NoticeTest), Body: []byte(`{}`)})
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *waiting) DueDeliveries(context.Context, int) (due []outbox.Delivery, next time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.due), time.Time{}, nil
}

func (q *waiting) NoteDelivered(_ context.Context, list []outbox.Attempt) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range list {
		q.due = slices.DeleteFunc(q.due, func(d outbox.Delivery) bool { return d.ID == a.ID })
		q.delivered <- a.ID + " " + a.State
	}
	return nil
}

func (q *waiting) ForgetDelivered(context.Context) error { return nil }

func (q *waiting) NoticesChanged() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// TestASlowHookHoldsUpOnlyItself: while one hook does not answer, another gets
// what is due then, and what comes later.
func TestASlowHookHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/slow") {
			<-released
		}
	}))
	defer server.Close()
	defer release()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("k", leastSecret)), 0o600); err != nil {
		t.Fatal(err)
	}
	hook := func(path string) Webhook {
		return Webhook{URL: server.URL + path, SecretFile: secret, Timeout: ckpt.Duration(time.Hour)}
	}
	q := &waiting{changed: make(chan struct{}), delivered: make(chan string, 10)}
	w := &Worker{Store: q, Config: Config{Webhooks: map[string]Webhook{"ops": hook("/slow"), "pager": hook("/fast")}},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now}
	wait := func(want string) {
		t.Helper()
		select {
		case got := <-q.delivered:
			if got != want {
				t.Fatalf("%s was next, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s waits", want)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	q.add("ops", "slow1")
	q.add("pager", "fast1")
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	wait("fast1 delivered")
	q.add("pager", "fast2")
	wait("fast2 delivered")
	release()
	wait("slow1 delivered")
}
