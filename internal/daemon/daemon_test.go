package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// running is a daemon inside the test process.
type running struct {
	t      *testing.T
	config Config
	client *client.Client
	stop   context.CancelFunc
	hurry  chan struct{}
	ended  chan error
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func start(t *testing.T, c Config) *running {
	t.Helper()
	return startAs(t, c, func(*Daemon) {})
}

func startAs(t *testing.T, c Config, as func(*Daemon)) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, config: c, client: &client.Client{Socket: c.Socket}, stop: stop, hurry: make(chan struct{}), ended: make(chan error, 1), log: &lockedBuffer{}}
	d := &Daemon{Config: c, Version: "test", Hurry: r.hurry, Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	as(d)
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.ended <- d.Run(ctx)
	}()
	for r.client.Ready(t.Context()) != nil {
		select {
		case err := <-r.ended:
			t.Fatalf("the daemon ended: %v\n%s", err, r.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
	t.Cleanup(func() {
		r.client.Close()
		stop()
		<-over // at its end it records the head of the audit log, in a folder that is then removed
	})
	return r
}

// end waits at most this long for the daemon's end.
func (r *running) end(within time.Duration) error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- nil
		return err
	case <-time.After(within):
		r.t.Fatalf("the daemon did not end in %v\n%s", within, r.log)
		return nil
	}
}

func (r *running) save(agent, state string) *ckpt.Saved {
	r.t.Helper()
	saved, err := r.client.Save(r.t.Context(), &ckpt.SaveRequest{
		Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(state),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return saved
}

func code(err error) int {
	var end *EndError
	if errors.As(err, &end) {
		return end.ExitCode
	}
	return 0
}

func TestStartServeStopAgain(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := sound(t)
	for n := range 3 {
		r := start(t, c)
		if seq := r.save("a", `{"n":1}`).Seq; seq != int64(n+1) {
			t.Errorf("sequence number %d in round %d", seq, n)
		}
		r.client.Close()
		r.stop()
		if err := r.end(time.Minute); err != nil {
			t.Errorf("a clean stop gave %v", err)
		}
		if _, err := os.Stat(c.Socket); err == nil {
			t.Error("the socket is left")
		}
		for _, want := range []string{"msg=ready", "msg=stopped"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("no %q in the log:\n%s", want, r.log)
			}
		}
	}
}

func TestASecondDaemonEndsAtOnce(t *testing.T) {
	r := start(t, sound(t))
	other := r.config
	other.Socket = filepath.Join(t.TempDir(), "other")
	elsewhere := r.config
	elsewhere.Database = filepath.Join(t.TempDir(), "other.db")
	for name, c := range map[string]Config{"same database": other, "same endpoint": elsewhere, "same both": r.config} {
		err := (&Daemon{Config: c}).Run(t.Context()) // the matrix of faults checks that this takes at most a second
		if code(err) != ExitRunning || !strings.Contains(err.Error(), "already running") {
			t.Errorf("%s: exit code %d, %v", name, code(err), err)
		}
	}
	r.save("a", `{}`) // and the first daemon continues
}

// TestAStartThatFailsLeavesNothing: a start that fails releases everything, so
// the next one can have it.
func TestAStartThatFailsLeavesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a pipe has no file in its way")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := sound(t)
	if err := os.WriteFile(c.Socket, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Daemon{Config: c}).Run(t.Context()); code(err) != ExitOperator {
		t.Fatalf("exit code %d, %v", code(err), err)
	}
	if err := os.Remove(c.Socket); err != nil {
		t.Fatal(err)
	}
	r := start(t, c)
	r.client.Close()
	r.stop()
	if err := r.end(time.Minute); err != nil {
		t.Error(err)
	}
}

// TestARequestInFlightIsAnsweredBeforeTheEnd sends half a save, stops the
// daemon, and sends the rest. The save is answered before the daemon ends.
func TestARequestInFlightIsAnsweredBeforeTheEnd(t *testing.T) {
	r := start(t, sound(t))
	finish, answer := r.halfASave()
	r.stop()
	r.stopping()
	finish()
	if status := <-answer; status != http.StatusCreated {
		t.Errorf("status %d", status)
	}
	if err := r.end(time.Minute); err != nil {
		t.Error(err)
	}
	again := start(t, r.config)
	if _, err := again.client.Latest(t.Context(), ckpt.CheckpointFilter{Agent: "slow"}, true); err != nil {
		t.Errorf("what was answered is not there: %v", err)
	}
}

// stopping waits until the daemon has begun to stop.
func (r *running) stopping() {
	r.t.Helper()
	expect.Soon(r.t, "the end's beginning", func() bool { return strings.Contains(r.log.String(), "stopping") })
}

// TestNobodyIsWaitedForBeyondTheLimit: the daemon waits for no request longer
// than the stop timeout, or after a second request to stop.
func TestNobodyIsWaitedForBeyondTheLimit(t *testing.T) {
	c := sound(t)
	c.StopTimeout = ckpt.Duration(300 * time.Millisecond)
	r := start(t, c)
	finish, _ := r.halfASave()
	defer finish()
	r.stop()
	if err := r.end(30 * time.Second); err != nil {
		t.Error(err)
	}

	c.StopTimeout = ckpt.Duration(time.Minute)
	r = start(t, c)
	finish, _ = r.halfASave()
	defer finish()
	r.stop()
	r.stopping()
	close(r.hurry)
	if err := r.end(30 * time.Second); err != nil {
		t.Error(err)
	}
}

func TestADatabaseThatIsTakenAwayIsAFailStop(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed there")
	}
	r := start(t, sound(t))
	r.save("a", `{}`)
	if err := os.Remove(r.config.Database); err != nil {
		t.Fatal(err)
	}
	if err := r.end(3 * time.Second); code(err) != ExitFault {
		t.Errorf("exit code %d, %v", code(err), err)
	}
}

func TestMetricsNameNobody(t *testing.T) {
	r := start(t, sound(t))
	const canary = "canary-4711"
	r.save(canary, `{"token":"`+canary+`"}`)
	if _, err := r.client.Checkpoint(t.Context(), "0197f6a0-0000-7000-8000-000000000001", false); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Fatal(err)
	}
	text := r.get("/metrics")
	if strings.Contains(text, canary) || strings.Contains(text, "uid:") {
		t.Error("the metrics name an agent or an owner")
	}
	for _, want := range []string{
		`ckptsidecar_checkpoints{kind="routine"} 1`, `ckptsidecar_agents 1`, `ckptsidecar_state{state="ready"} 1`,
		`ckptsidecar_requests_total{code="ok",route="save"} 1`, `ckptsidecar_requests_total{code="not_found",route="show"} 1`,
		`ckptsidecar_request_seconds_count{route="save"} 1`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(r.log.String(), `"token"`) {
		t.Error("a payload is in the log")
	}
}

func TestStatusIsComplete(t *testing.T) {
	r := start(t, sound(t))
	s, err := r.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != os.Getpid() || s.Endpoint != r.config.Socket || s.StartedAt.IsZero() || s.Worker.GuardedUntil.IsZero() || s.Version != "test" {
		t.Errorf("%+v", s)
	}
}

func TestMetricsWithoutADatabaseStillTell(t *testing.T) {
	m := newMetrics(func(context.Context) (*ckpt.Status, error) { return nil, errors.New("locked") }, func() server.Stats { return server.Stats{Connections: 7} }, nil)
	m.observe(server.Observation{Status: 404, Code: ckpt.CodeNotFound})
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"ckptsidecar_connections 7", `ckptsidecar_requests_total{code="not_found",route="none"} 1`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, w.Body)
		}
	}
}
