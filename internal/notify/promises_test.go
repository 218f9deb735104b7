package notify

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/outbox"
)

// Each promise that docs/OPERATIONS.md makes about hooks, against a real server and a real program.

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const key = "0123456789abcdefghijklmnop"

// hooked is a worker with one webhook.
func hooked(t *testing.T, url string) *Worker {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Worker{Config: Config{Retry: defaultRetry, Webhooks: map[string]Webhook{"ops": {URL: url, SecretFile: secret, Timeout: ckpt.Duration(time.Minute)}}},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return start }}
}

func (w *Worker) try(attempts int) outbox.Attempt {
	return w.attempt(context.Background(), outbox.Delivery{Hook: "ops", ID: "msg_1", Type: "test", Body: []byte(`{"id":"msg_1"}`), Attempts: attempts})
}

func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		after  string
		state  string
		pause  time.Duration
	}{
		{200, "", outbox.Delivered, 0},
		{204, "", outbox.Delivered, 0},
		{299, "", outbox.Delivered, 0},
		{410, "", outbox.Dead, 0},
		{404, "", outbox.Pending, time.Second},
		{500, "", outbox.Pending, time.Second},
		{503, "3600", outbox.Pending, time.Hour},
		{429, "1000000", outbox.Pending, longestPause},
		{503, "-5", outbox.Pending, time.Second},
		{503, "soon", outbox.Pending, time.Second},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if got := r.Header.Get(headerSignature); got != Sign([]byte(key), "msg_1", start, body) || !strings.HasPrefix(got, "v1,") {
				t.Errorf("the signature is %q", got)
			}
			if r.Method != http.MethodPost || r.Header.Get(headerID) != "msg_1" || r.Header.Get(headerTimestamp) != strconv.FormatInt(start.Unix(), 10) ||
				string(body) != `{"id":"msg_1"}` || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("the request is %s %v %s", r.Method, r.Header, body)
			}
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
		}))
		got := hooked(t, server.URL).try(0)
		if got.State != c.state || got.Next.Sub(start) != c.pause {
			t.Errorf("%d, Retry-After %q: %s, again in %s (%s)", c.status, c.after, got.State, got.Next.Sub(start), got.Error)
		}
		server.Close()
	}
}

// TestPausesAndTheEndOfAttempts: the pauses grow fourfold up to two hours, and after 14 attempts the notice is given up.
func TestPausesAndTheEndOfAttempts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer server.Close()
	w, want, total := hooked(t, server.URL), time.Second, time.Duration(0)
	for n := range 13 {
		got := w.try(n)
		if pause := got.Next.Sub(start); got.State != outbox.Pending || pause != want {
			t.Errorf("after attempt %d: %s, again in %s, not %s", n+1, got.State, pause, want)
		}
		total += want
		want = min(4*want, 2*time.Hour)
	}
	if got := w.try(13); got.State != outbox.Dead {
		t.Errorf("after attempt 14: %s", got.State)
	}
	if total < 13*time.Hour || total > 14*time.Hour {
		t.Errorf("the attempts take %s", total)
	}
}

// TestRedirectsAreNotFollowed: a notice goes only to the address in the settings.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, status)
		}))
		if got := hooked(t, server.URL).try(0); got.State != outbox.Pending {
			t.Errorf("%d: %s", status, got.State)
		}
		server.Close()
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d notices went elsewhere", n)
	}
}

// TestHTTPStaysOnThisMachine: http to another machine is refused in the settings, and again when the name has been resolved.
func TestHTTPStaysOnThisMachine(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://hooks.example.com/x", "http://192.0.2.1/", "http://127.0.0.1.example.com/", "ftp://127.0.0.1/", "http://0.0.0.0/"} {
		if _, err := ParseConfig([]byte(`{"webhooks":{"ops":{"url":"` + url + `","secret_file":"/x"}}}`)); err == nil {
			t.Errorf("%s is accepted", url)
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		network, is := a.(*net.IPNet)
		if !is || network.IP.IsLoopback() || network.IP.To4() == nil {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(network.IP.String(), "0"))
		if err != nil {
			continue
		}
		var seen atomic.Int32
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) })}}
		server.Start()
		got := hooked(t, server.URL).try(0)
		server.Close()
		if got.State != outbox.Pending || seen.Load() > 0 || !strings.Contains(got.Error, "only on this machine") {
			t.Errorf("to %s: %s %s, %d requests", network.IP, got.State, got.Error, seen.Load())
		}
		return
	}
	t.Skip("this machine has only loopback addresses")
}

// TestTheKeyIsReadEachTime: a new key needs no reload, in both forms. A key that is missing or short sends nothing.
func TestTheKeyIsReadEachTime(t *testing.T) {
	t.Parallel()
	var signed atomic.Value
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		signed.Store(r.Header.Get(headerSignature))
	}))
	defer server.Close()
	w := hooked(t, server.URL)
	file := w.Config.Webhooks["ops"].SecretFile
	for _, c := range []struct{ text, key string }{
		{key, key}, {"another key of many bytes", "another key of many bytes"},
		{secretPrefix + base64.StdEncoding.EncodeToString([]byte(key)), key},
		{"short", ""}, {secretPrefix + "%", ""},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		before := requests.Load()
		got := w.try(0)
		switch {
		case c.key == "" && (got.State != outbox.Pending || requests.Load() != before):
			t.Errorf("with the key %q: %s", c.text, got.State)
		case c.key != "" && signed.Load() != Sign([]byte(c.key), "msg_1", start, []byte(`{"id":"msg_1"}`)):
			t.Errorf("with the key %q: signed as %s", c.text, signed.Load())
		}
	}
}

// TestAHookThatIsGone: what waits for a hook that the settings no longer name is tried and given up like any other.
func TestAHookThatIsGone(t *testing.T) {
	t.Parallel()
	w := hooked(t, "http://127.0.0.1:1/")
	w.Config.Webhooks = nil
	if got := w.try(0); got.State != outbox.Pending || !strings.Contains(got.Error, "no longer") {
		t.Errorf("%+v", got)
	}
	if got := w.try(MaxAttempts - 1); got.State != outbox.Dead {
		t.Errorf("%+v", got)
	}
}

// TestATimeIsKept: a server that does not answer is left after the timeout, and its error names no path.
func TestATimeIsKept(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	w := hooked(t, server.URL+"/secret-path")
	hook := w.Config.Webhooks["ops"]
	hook.Timeout = ckpt.Duration(50 * time.Millisecond)
	err := hook.send(t.Context(), "msg_1", []byte(`{}`), start)
	if err == nil || !strings.Contains(err.Error(), "did not answer within 50ms") || strings.Contains(err.Error(), "secret-path") {
		t.Error(err)
	}
	var later *laterError
	if errors.As(err, &later) {
		t.Error("a silent server has asked for a pause")
	}
}
