//go:build unix

package faulttest

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// canary is a text that may appear in states only. Each place adds its own
// ending.
const canary = "sk-canary-7c1f"

// TestRecords: data that agents entrust to the daemon appears in the database
// and in the answers to them, and nowhere else: in no log line, error, status
// or metric.
func TestRecords(t *testing.T) {
	beside(t)
	d := NewDaemon(t, "--log-level", "debug", "--log-format", "json")
	d.Env = []string{"SOME_API_KEY=" + canary + "-environment"}
	d.Start()
	said := &strings.Builder{}
	for _, h := range entrusted() {
		replies, err := raw(d.Socket, h.text, 1, h.half)
		if err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
		for _, r := range replies {
			good := r.StatusCode/100 == 2
			if good == h.notHTTP { // here good means that the request must be refused
				t.Errorf("%s: %s %s", h.name, r.Status, r.body)
			}
			if !good {
				fmt.Fprintf(said, "error body of %s: %s", h.name, r.body)
			}
		}
	}
	for _, target := range []string{"/v1/status", "/metrics", "/v1/audit?limit=1000", "/v1/agents", "/readyz", "/v1/version"} {
		got := ask{Method: http.MethodGet, Path: target}.make(unixClient(d.Socket))
		if got.Status != http.StatusOK && (target != "/metrics" || os.Geteuid() == 0) { // metrics are only for administrators
			t.Errorf("%s: %d %s", target, got.Status, got.Err)
		}
		fmt.Fprintf(said, "%s: %s\n", target, got.Body)
	}
	d.Kill()
	for line := range strings.Lines(said.String() + d.Log()) {
		if strings.Contains(line, canary) {
			t.Errorf("a canary got out: %s", tail(line, 700))
		}
	}
	t.Logf("%d requests with canaries; %d bytes of log and answers searched", len(entrusted()), len(said.String())+len(d.Log()))
}

// entrusted are requests that carry canaries: valid requests, and requests that
// are refused because of the field that holds the canary.
func entrusted() []hostile {
	const token = "Authorization: Bearer " + canary + "-token\r\n"
	good := `{"kind":"routine","state":{"password":"` + canary + `-payload"},"metadata":{"note":"` + canary + `-metadata"},"labels":{"who":"` + canary + `-label"}}`
	keyed := func(key, body string) string {
		return request("POST", saveTarget, isJSON+token+"Idempotency-Key: "+key+"\r\n", body)
	}
	const key = canary + "-key"
	list := []hostile{
		{name: "envelope", text: keyed(key, good)},
		{name: "envelope again", text: keyed(key, good)},
		{name: "raw", text: request("POST", saveTarget+"?kind=routine&label=who="+canary+"-query", token+"Content-Type: text/plain\r\nCkpt-Metadata: {\"a\":\""+canary+"-header\"}\r\n", canary+"-raw")},
		{name: "restore", text: request("POST", "/v1/agents/victim/restore", token, `{"reason":"again"}`)},
	}
	for name, text := range map[string]string{
		"same key, another body":       keyed(key, `{"kind":"routine","state":"`+canary+`-other"}`),
		"broken JSON":                  keyed("k1", `{"kind":"routine","state":"`+canary+`-broken`),
		"trailing":                     keyed("k2", good+canary),
		"bare word":                    keyed("k3", `{"kind":"routine","state":`+canary+`}`),
		"metadata is text":             keyed("k4", `{"kind":"routine","state":1,"metadata":"`+canary+`-text"}`),
		"label with a control":         keyed("k5", `{"kind":"routine","state":1,"labels":{"who":"`+canary+`\u0007"}}`),
		"label too long":               keyed("k6", `{"kind":"routine","state":1,"labels":{"who":"`+canary+strings.Repeat("x", 300)+`"}}`),
		"key with a tab":               keyed(canary+"\ttab", `{"kind":"routine","state":1}`),
		"key too long":                 keyed(canary+strings.Repeat("x", 600), `{"kind":"routine","state":1}`),
		"key not UTF-8":                keyed(canary+"\xff", `{"kind":"routine","state":1}`),
		"raw that is no JSON":          request("PUT", "/v1/agents/victim/checkpoints/01a1fc23-90da-7b48-aa90-17b2adebac2d?kind=routine", isJSON+token, canary),
		"metadata header":              request("POST", saveTarget+"?kind=routine", token+"Content-Type: text/plain\r\nCkpt-Metadata: "+canary+"\r\n", "x"),
		"program header":               request("POST", saveTarget+"?kind=routine", token+"Content-Type: text/plain\r\nCkpt-Program: {\"source\":\""+canary+"\",\"executed\":99999}\r\n", "x"),
		"label query with a control":   request("POST", saveTarget+"?kind=routine&label=who="+canary+"%07", token+"Content-Type: text/plain\r\n", "x"),
		"label query without a value":  request("POST", saveTarget+"?kind=routine&label="+canary, token+"Content-Type: text/plain\r\n", "x"),
		"web page":                     request("POST", saveTarget, isJSON+token+"Origin: http://"+canary+"\r\n", good),
		"import":                       request("POST", "/v1/import", token, canary+"\n"),
		"merge patch":                  request("POST", saveTarget+"?kind=routine&base=01a1fc23-90da-7b48-aa90-17b2adebac2d", token+"Content-Type: application/merge-patch+json\r\n", `{"password":"`+canary+`"}`),
		"content type":                 request("POST", saveTarget+"?kind=routine", token+"Content-Type: "+canary+strings.Repeat("x", 300)+"\r\n", "x"),
		"reason with a control":        request("POST", "/v1/agents/victim/restore", token, `{"reason":"`+canary+`\u0007"}`),
		"content encoding and payload": request("POST", saveTarget, isJSON+token+"Content-Encoding: gzip\r\n", canary),
	} {
		list = append(list, hostile{name: name, text: text, notHTTP: true})
	}
	return list
}
