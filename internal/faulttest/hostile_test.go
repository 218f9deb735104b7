//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// maxBody is the body limit of the daemon in TestHostileRequests.
const maxBody = 256 << 10

// hostile is one input that none of our clients would send. If the bytes are
// not HTTP, the daemon may close the connection, or reply as net/http does.
type hostile struct {
	name    string
	text    string
	notHTTP bool
	half    bool // close the writing end, because the daemon waits for more
}

// request is well-formed HTTP with arbitrary content.
func request(method, target, header, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: d\r\n%sContent-Length: %d\r\n\r\n%s", method, target, header, len(body), body)
}

const (
	saveTarget = "/v1/agents/victim/checkpoints"
	isJSON     = "Content-Type: application/json\r\n"
)

func post(body string) string { return request("POST", saveTarget, isJSON, body) }

// TestHostileRequests is F28 against the real daemon: for every input over the
// socket, the answer is a problem that blames the caller, and the daemon stays
// healthy.
func TestHostileRequests(t *testing.T) {
	d := NewDaemon(t, "--set", fmt.Sprintf("limits.max_body=%d", maxBody))
	d.Start()
	c := d.Client()
	if _, err := c.Save(context.Background(), &ckpt.SaveRequest{Agent: "victim", Kind: ckpt.KindPreOperation, State: []byte("whole")}); err != nil {
		t.Fatal(err)
	}
	before, _ := d.RSS()
	sent := 0
	for _, list := range [][]hostile{hostileJSON(), hostileTargets(), hostileHeaders(), hostileBodies(), hostileFraming()} {
		for _, h := range list {
			t.Run(h.name, func(t *testing.T) { h.send(t, d) })
			sent++
		}
	}
	random := newRand(t, 0)
	for i := range 300 {
		mutant := hostile{name: fmt.Sprintf("mutant %d", i), text: mutate(random, post(`{"kind":"routine","state":{"a":[1,2,"x"]},"labels":{"k":"v"}}`)), notHTTP: true, half: true}
		mutant.send(t, d)
	}
	pipelined(t, d)
	_, peak := d.RSS()
	t.Logf("%d hostile requests and 300 mutants; memory %.0f MB before, at most %.0f MB", sent, float64(before)/1e6, float64(peak)/1e6)
	if peak > before+400<<20 {
		t.Errorf("memory went from %d to %d bytes", before, peak)
	}
	list, err := listAll(c, ckpt.CheckpointFilter{Agent: "victim", Kind: ckpt.KindPreOperation})
	if err != nil || len(list) != 1 {
		t.Errorf("what was saved before: %+v, %v", list, err)
	}
	if !d.Running() {
		t.Fatal("the daemon has ended")
	}
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
}

func (h hostile) send(t *testing.T, d *Daemon) {
	t.Helper()
	replies, err := raw(d.Socket, h.text, 1, h.half)
	switch {
	case err != nil:
		t.Errorf("%s: %v", h.name, err)
	case len(replies) == 0 && !h.notHTTP:
		t.Errorf("%s: the connection was closed without an answer", h.name)
	case len(replies) > 0 && h.notHTTP && replies[0].StatusCode >= 500 && replies[0].StatusCode != 501 && replies[0].StatusCode != 505:
		t.Errorf("%s: %s: %s", h.name, replies[0].Status, replies[0].body)
	}
	if h.notHTTP || len(replies) == 0 {
		return
	}
	if _, err := replies[0].problem(); err != nil {
		t.Errorf("%s: %v", h.name, err)
	}
}

func hostileJSON() []hostile {
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	bodies := map[string]string{
		"empty": "", "no object": "[]", "null": "null", "cut": `{"kind":"routine","state":`, "trailing": `{"kind":"routine","state":1} x`,
		"two values": `{"kind":"routine","state":1}{"kind":"routine","state":1}`, "duplicate key": `{"kind":"routine","kind":"recovery","state":1}`,
		"duplicate key in the state": `{"kind":"routine","state":{"a":1,"a":2}}`, "escaped duplicate": `{"kind":"routine","state":{"a":1,"\u0061":2}}`,
		"wrong case": `{"Kind":"routine","state":1}`, "unknown field": `{"kind":"routine","state":1,"owner":"uid:0"}`, "no state": `{"kind":"routine"}`,
		"unknown kind": `{"kind":"eternal","state":1}`, "kind is a number": `{"kind":1,"state":1}`, "UTF-8 cut": "{\"kind\":\"routine\",\"state\":\"\xe2\x82\"}",
		"overlong UTF-8": "{\"kind\":\"routine\",\"state\":\"\xc0\xaf\"}", "lone surrogate byte": "{\"kind\":\"routine\",\"state\":\"\xed\xa0\x80\"}",
		"zero byte": "{\"kind\":\"routine\",\"state\":\"\x00\"}", "byte order mark": "\xef\xbb\xbf{\"kind\":\"routine\",\"state\":1}", "NaN": `{"kind":"routine","state":NaN}`,
		"leading zero": `{"kind":"routine","state":01}`, "comment": `{"kind":"routine",/* */"state":1}`, "comma": `{"kind":"routine","state":1,}`,
		"deep state": `{"kind":"routine","state":` + deep + `}`, "deep": deep, "deep objects": strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000),
		"deep unclosed": strings.Repeat("[", 200_000), "epoch too large": `{"kind":"routine","state":1,"epoch":99999999999999999999}`, "labels as a list": `{"kind":"routine","state":1,"labels":["a"]}`,
		"33 labels": `{"kind":"routine","state":1,"labels":{` + labels(33) + `}}`, "label key": `{"kind":"routine","state":1,"labels":{"../x":"v"}}`,
		"control character in a label": `{"kind":"routine","state":1,"labels":{"k":"a\u0000b"}}`, "metadata is text": `{"kind":"routine","state":1,"metadata":"x"}`,
		"metadata too large": `{"kind":"routine","state":1,"metadata":{"a":"` + strings.Repeat("x", 70_000) + `"}}`, "run": `{"kind":"routine","state":1,"run":"../../etc"}`,
		"program outside": `{"kind":"routine","state":1,"program":{"source":"ab","executed":3}}`, "program inside a character": `{"kind":"routine","state":1,"program":{"source":"é","executed":1}}`,
		"parent": `{"kind":"routine","state":1,"parent":"' OR 1=1 --"}`, "fence": `{"kind":"routine","state":1,"epoch":-1}`,
	}
	var list []hostile
	for name, body := range bodies {
		list = append(list, hostile{name: "JSON " + name, text: post(body)})
	}
	return list
}

func labels(n int) string {
	var pairs []string
	for i := range n {
		pairs = append(pairs, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(pairs, ",")
}

func hostileTargets() []hostile {
	var list []hostile
	for _, name := range []string{
		"..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "a%2fb", "a%00b", "%ff", "%c0%af", ".hidden", "-rf", "a%20b", "a%0d%0aX:%20y", "'%20OR%201=1--",
		"%E2%80%AE", strings.Repeat("a", 129), strings.Repeat("a", 5000), "a;b", "a%5cb", "~root", "*",
	} {
		list = append(list,
			hostile{name: "agent " + tail(name, 30), text: request("PUT", "/v1/agents/"+name+"/policy", "", `{}`)},
			hostile{name: "restore " + tail(name, 30), text: request("POST", "/v1/agents/"+name+"/restore", "", `{}`)})
	}
	for _, target := range []string{
		"/", "//", "/v1", "/v1/", "/v2/agents", "/v1//agents", "/v1/agents/", "/v1/agents/../agents", "/v1/./agents", "/V1/agents", "/debug/pprof/", "/v1/agents/victim",
		"/etc/passwd", "/v1/checkpoints/x", "/v1/checkpoints/00000000-0000-0000-0000-000000000000", "/v1/agents/victim/checkpoints/ID",
		saveTarget + "?limit=1&limit=2", saveTarget + "?limit=0", saveTarget + "?limit=-1", saveTarget + "?limit=1e3", saveTarget + "?limit=99999999999999999999",
		saveTarget + "?run=a&run=b", saveTarget + "?run=", saveTarget + "?run=a;kind=b", saveTarget + "?run=%ff", saveTarget + "?nope=1", saveTarget + "?kind=all",
		saveTarget + "?label=x", saveTarget + "?before=%27", saveTarget + "?suspect=maybe", saveTarget + "?owner=root", saveTarget + "?owner=uid:0&owner=uid:1", saveTarget + "?owner=*",
		"/v1/audit?after=-1", "/v1/audit?agent=../x", "/v1/agents?before=%00",
	} {
		method := "GET"
		if target == "/v1/agents/victim" {
			method = "PATCH"
		}
		list = append(list, hostile{name: "target " + tail(target, 40), text: request(method, target, "", "")})
	}
	for _, method := range []string{"TRACE", "CONNECT", "BREW", "PROPFIND", "get", strings.Repeat("M", 300)} {
		list = append(list, hostile{name: "method " + tail(method, 20), text: request(method, "/v1/agents", "", "")})
	}
	return list
}

func hostileHeaders() []hostile {
	const good = `{"kind":"routine","state":1}`
	var list []hostile
	for name, header := range map[string]string{
		"Origin": "Origin: http://evil.example\r\n", "Origin null": "Origin: null\r\n", "empty Origin": "Origin:\r\n", "Referer": "Referer: http://evil.example/\r\n",
		"two content types": isJSON + isJSON, "content encoding": isJSON + "Content-Encoding: gzip\r\n", "two keys": isJSON + "Idempotency-Key: a\r\nIdempotency-Key: b\r\n",
		"empty key": isJSON + "Idempotency-Key: \r\n", "key too long": isJSON + "Idempotency-Key: " + strings.Repeat("k", 513) + "\r\n", "key with a tab": isJSON + "Idempotency-Key: a\tb\r\n",
		"key not UTF-8": isJSON + "Idempotency-Key: \xff\xfe\r\n", "delta": "Content-Type: application/vnd.ckptsidecar.delta\r\n",
		"merge patch without a base": "Content-Type: application/merge-patch+json\r\n", "JSON patch without a base": "Content-Type: application/json-patch+json\r\n",
		"form": "Content-Type: application/x-www-form-urlencoded\r\n", "content type too long": "Content-Type: a/" + strings.Repeat("b", 300) + "\r\n",
	} {
		list = append(list, hostile{name: "header " + name, text: request("POST", saveTarget, header, good)})
	}
	for name, header := range map[string]string{
		"metadata": "Ckpt-Metadata: {\r\n", "metadata is a list": "Ckpt-Metadata: []\r\n", "two of metadata": "Ckpt-Metadata: {}\r\nCkpt-Metadata: {}\r\n",
		"program": "Ckpt-Program: {\"source\":1}\r\n", "deep metadata": "Ckpt-Metadata: " + strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000) + "\r\n",
	} {
		list = append(list, hostile{name: "header " + name, text: request("POST", saveTarget+"?kind=routine", "Content-Type: text/plain\r\n"+header, good)})
	}
	return append(list,
		hostile{name: "300 KB of headers", text: request("GET", "/v1/agents", "X-Large: "+strings.Repeat("x", 300<<10)+"\r\n", ""), notHTTP: true},
		hostile{name: "100,000 headers", text: request("GET", "/v1/agents", strings.Repeat("a: b\r\n", 100_000), ""), notHTTP: true})
}

func hostileBodies() []hostile {
	head := func(headers string) string {
		return "POST " + saveTarget + " HTTP/1.1\r\nHost: d\r\n" + isJSON + headers + "\r\n"
	}
	large := `{"kind":"routine","state":"` + strings.Repeat("x", maxBody+1) + `"}`
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", 4<<20, bytes.Repeat([]byte("x"), 4<<20))
	return []hostile{
		{name: "state one over the limit", text: request("POST", saveTarget+"?kind=routine", "Content-Type: text/plain\r\n", strings.Repeat("x", maxBody+1))},
		{name: "envelope over the limit", text: post(large)},
		{name: "8 EB promised", text: head("Content-Length: 9223372036854775807\r\n")},
		{name: "1 TB promised", text: head("Content-Length: 1099511627776\r\n")},
		{name: "chunks over the limit", text: head("Transfer-Encoding: chunked\r\n") + chunked},
		{name: "body cut", text: head("Content-Length: 100\r\n") + `{"kind"`, half: true},
		{name: "chunk cut", text: head("Transfer-Encoding: chunked\r\n") + "ff\r\n{", half: true},
		{name: "chunk of no length", text: head("Transfer-Encoding: chunked\r\n") + "zz\r\n"},
		{name: "policy over 1 MiB", text: request("PUT", "/v1/agents/victim/policy", "", strings.Repeat(" ", 1<<20)+"{}")},
		{name: "import of rubbish", text: request("POST", "/v1/import", "", strings.Repeat("rubbish\n", 1000))},
		{name: "import of nothing", text: request("POST", "/v1/import", "", "")},
	}
}

func hostileFraming() []hostile {
	list := []hostile{
		{name: "nothing", half: true},
		{name: "no HTTP", text: "EHLO daemon\r\n\r\n"},
		{name: "TLS", text: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 200), half: true},
		{name: "HTTP/2", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", half: true},
		{name: "HTTP/9.9", text: "GET /v1/agents HTTP/9.9\r\nHost: d\r\n\r\n"},
		{name: "no host", text: "GET /v1/agents HTTP/1.1\r\n\r\n"},
		{name: "negative length", text: "POST " + saveTarget + " HTTP/1.1\r\nHost: d\r\nContent-Length: -1\r\n\r\n"},
		{name: "two lengths", text: "POST " + saveTarget + " HTTP/1.1\r\nHost: d\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"},
		{name: "unknown transfer coding", text: "POST " + saveTarget + " HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: sideways\r\n\r\n"},
		{name: "space in the target", text: "GET /v1/ agents HTTP/1.1\r\nHost: d\r\n\r\n"},
		{name: "bad escape", text: "GET /v1/agents/%zz HTTP/1.1\r\nHost: d\r\n\r\n"},
		{name: "header cut", text: "GET /v1/agents HTTP/1.1\r\nHost", half: true},
		{name: "zeroes", text: strings.Repeat("\x00", 4096), half: true},
		{name: "line without an end", text: strings.Repeat("G", 1<<20), half: true},
	}
	for i := range list {
		list[i].notHTTP = true
	}
	return append(list, hostile{name: "HTTP/1.0", text: "GET /v1/nothing HTTP/1.0\r\n\r\n"}, hostile{name: "half-closed", text: post("{"), half: true})
}
