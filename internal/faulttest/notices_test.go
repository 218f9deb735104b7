//go:build unix

package faulttest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/notify"
)

// receiver is a webhook server that can fail, stay silent, and be down.
type receiver struct {
	t       *testing.T
	secret  []byte
	address string
	server  *httptest.Server

	mu     sync.Mutex
	mode   string            // ok, fail or silent
	tries  int               // the number of requests
	bodies map[string][]byte // accepted notices, by id
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, secret: []byte("a key for signatures of 32 bytes"), address: "127.0.0.1:0", mode: "ok", bodies: map[string][]byte{}}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *receiver) start() {
	r.t.Helper()
	var listener net.Listener
	waitUntil(r.t, "the receiver's port is free", func() (err error) {
		listener, err = net.Listen("tcp", r.address)
		return err
	})
	r.address = listener.Addr().String()
	r.server = httptest.NewUnstartedServer(r)
	_ = r.server.Listener.Close()
	r.server.Listener = listener
	r.server.StartTLS()
}

// waitUntil waits until try succeeds.
func waitUntil(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func (r *receiver) stop() {
	if r.server != nil {
		r.server.CloseClientConnections()
		r.server.Close()
		r.server = nil
	}
}

func (r *receiver) set(mode string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode, r.tries = mode, 0
}

// tried waits until an attempt was made.
func (r *receiver) tried() {
	r.t.Helper()
	waitUntil(r.t, "an attempt", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.tries == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
}

// ServeHTTP accepts only requests with a valid signature.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	r.mu.Lock()
	r.tries++
	mode := r.mode
	r.mu.Unlock()
	switch {
	case err != nil || mode == "fail":
		w.WriteHeader(http.StatusInternalServerError)
		return
	case mode == "silent":
		<-q.Context().Done()
		return
	}
	id := q.Header.Get("webhook-id")
	seconds, err := strconv.ParseInt(q.Header.Get("webhook-timestamp"), 10, 64)
	if want := notify.Sign(r.secret, id, time.Unix(seconds, 0), body); err != nil || want != q.Header.Get("webhook-signature") {
		r.t.Errorf("a notice is not signed well: %v", q.Header)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, is := r.bodies[id]; is && !bytes.Equal(before, body) {
		r.t.Errorf("%s came twice, with another body", id)
	}
	r.bodies[id] = body
}

// told returns the subjects of the accepted notices.
func (r *receiver) told() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := map[string]bool{}
	for id, body := range r.bodies {
		var n ckpt.Notice
		if err := json.Unmarshal(body, &n); err != nil || n.ID != id || n.Timestamp.IsZero() || n.Data.Message == "" {
			r.t.Errorf("%s: %s %v", id, body, err)
		}
		told[about(&n)] = true
	}
	return told
}

func about(n *ckpt.Notice) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", n.Type, n.Data.Run, n.Data.Subject))
}

// TestNoticesArrive sends notices to a webhook and a command while the receiver fails, stays silent and is down,
// and while the daemon is killed in between. Each notice arrives, signed, with one id and one body.
func TestNoticesArrive(t *testing.T) {
	t.Parallel()
	needSqlite(t)
	r := newReceiver(t)
	d := NewDaemon(t)
	write := func(name, text string) string {
		path := filepath.Join(d.Dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	coded := base64.StdEncoding.EncodeToString(r.secret)
	tee, err := exec.LookPath("tee")
	if err != nil {
		t.Skip("there is no tee")
	}
	lines := filepath.Join(d.Dir, "lines")
	hooks, err := json.Marshal(map[string]any{
		"retry": "20ms",
		"webhooks": map[string]any{"ops": map[string]any{"url": "https://" + r.address + "/path-secret", "secret_file": write("secret", "whsec_"+coded+"\n"), "timeout": "1s",
			"ca_file": write("ca", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})))}},
		"commands": map[string]any{"lines": map[string]any{"run": []string{tee, "-a", lines}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Flags = []string{"--set", "notify=" + string(hooks), "--set", "monitor.interval=50ms", "--set", "backup.interval=1m", "--set", "backup.folder=/dev/null/backups"}
	want := map[string]bool{"backup.failed": true}
	ask := func(run string) {
		t.Helper()
		p, _, err := d.Client().AskQuestion(t.Context(), ckpt.QuestionRequest{Agent: "a", Run: run, Question: "Deploy " + run + "?"})
		if err != nil {
			t.Fatal(err)
		}
		want["prompt.opened "+run+" "+p.ID] = true
	}

	r.set("fail")
	d.Start()
	ask("one")
	r.tried()
	owner := exec.Command("sleep", "1000")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Client().StartRun(t.Context(), ckpt.RunRequest{Agent: "a", Run: "dies", PID: owner.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	_ = owner.Process.Kill()
	_ = owner.Wait()
	want["run.dead dies"] = true
	waitUntil(t, "the run is found dead", func() error {
		run, err := d.Client().Run(t.Context(), ckpt.RunRef{Agent: "a", Run: "dies"})
		if err == nil && run.Status != ckpt.RunInterrupted {
			err = fmt.Errorf("it is %s", run.Status)
		}
		return err
	})
	d.Kill() // while attempts fail

	r.set("silent")
	d.Start()
	ask("two")
	posted, _, err := d.Client().PostFinding(t.Context(), "a", ckpt.FindingRequest{Run: "two", Rule: "mine", Severity: ckpt.SeverityCritical, Message: "it is bad"})
	if err != nil {
		t.Fatal(err)
	}
	want["finding.critical two "+posted.ID] = true
	r.tried()
	d.Kill() // in the middle of an attempt

	r.stop()
	d.Start()
	ask("three")
	tested, err := d.Client().NotifyTest(t.Context())
	if err != nil || !slices.Equal(tested.Hooks, []string{"lines", "ops"}) {
		t.Fatal(tested, err)
	}
	want["test"] = true
	d.Kill() // while the receiver is down

	// A change of the file by hand is a storage problem that the next start detects.
	if _, err := sqlite(d.DB, "DROP TRIGGER prompts_are_never_changed"); err != nil {
		t.Fatal(err)
	}
	want["storage.trouble"] = true
	r.set("ok")
	r.start()
	d.Start()
	waitUntil(t, "each notice arrives", func() error {
		told := r.told()
		for what := range want {
			if !told[what] {
				return fmt.Errorf("%s is missing in %v", what, slices.Collect(maps.Keys(told)))
			}
		}
		return nil
	})
	waitUntil(t, "each was delivered", func() error {
		st, err := d.Client().Status(t.Context())
		if err != nil {
			return err
		}
		for _, h := range st.Notify.Hooks {
			if h.Pending != 0 || h.Dead != 0 || h.Delivered < int64(len(want)) || h.Kind == "" {
				return fmt.Errorf("%+v", h)
			}
		}
		if len(st.Notify.Hooks) != 2 {
			return fmt.Errorf("%+v", st.Notify)
		}
		return nil
	})
	commands(t, lines, want)
	for _, secret := range []string{coded, string(r.secret), "path-secret"} {
		if strings.Contains(d.Log(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// commands compares the notices that the command got with the expected ones.
func commands(t *testing.T, path string, want map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for decode := json.NewDecoder(bytes.NewReader(text)); ; {
		var n ckpt.Notice
		if err := decode.Decode(&n); err != nil {
			break
		}
		told[about(&n)] = true
	}
	for what := range want {
		if !told[what] {
			t.Errorf("the command was not told of %s: %v", what, told)
		}
	}
}
