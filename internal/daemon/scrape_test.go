package daemon

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestPrometheusAsksAtAPort requests the metrics from the port of
// metrics.listen as Prometheus does. Other paths, other methods, and host names
// of other sites (DNS rebinding) are refused.
func TestPrometheusAsksAtAPort(t *testing.T) {
	c := sound(t)
	c.MetricsListen = "127.0.0.1:0"
	r := start(t, c)
	r.save("a", `{}`)
	address := ""
	expect.Soon(t, "the port of the metrics is open", func() bool { // it opens a little after the socket
		address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(r.log.String())
		return address != ""
	})
	ask := func(method, path, host string) (int, string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			q.Host = host
		}
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	code, text := ask("GET", "/metrics", "")
	for _, want := range []string{
		`ckptsidecar_runs_by_status{status="running"} 1`, `ckptsidecar_runs_by_status{status="failed"} 0`,
		"ckptsidecar_uncertain_operations 0", "ckptsidecar_prompts_open 0",
	} {
		if code != 200 || !strings.Contains(text, want) {
			t.Errorf("%d, no %s in\n%s", code, want, text)
		}
	}
	for _, q := range []struct {
		method, path, host string
		code               int
	}{
		{"GET", "/metrics", "localhost:9464", 200}, {"GET", "/metrics", "[::1]:1", 200}, {"GET", "/metrics", "evil.example", 421},
		{"GET", "/v1/status", "", 404}, {"GET", "/", "", 404}, {"GET", "/metrics/", "", 404}, {"POST", "/metrics", "", 405},
	} {
		if code, _ := ask(q.method, q.path, q.host); code != q.code {
			t.Errorf("%s %s as %s: %d, not %d", q.method, q.path, q.host, code, q.code)
		}
	}
}

func TestMetricsListenOnThisMachineOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:9464", ":9464", "10.1.2.3:9464", "localhost:9464", "127.0.0.1"} {
		c := sound(t)
		c.MetricsListen = address
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestStatusSaysWhatWaits: the status counts the runs by their status.
func TestStatusSaysWhatWaits(t *testing.T) {
	r := start(t, sound(t))
	r.save("a", `{}`)
	r.save("b", `{}`)
	if _, _, err := r.client.EndRun(t.Context(), ckpt.RunRef{Agent: "b"}, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.client.StartRun(t.Context(), ckpt.RunRequest{Agent: "c"}); err != nil {
		t.Fatal(err)
	}
	s, err := r.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := s.Waiting.RunsByStatus
	if got[ckpt.RunRunning] != 1 || got[ckpt.RunCompleted] != 1 || got[ckpt.RunStarting] != 1 || len(got) != len(ckpt.RunStatuses) || s.Runs != 3 {
		t.Errorf("%v of %d", got, s.Runs)
	}
}
