package apitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.OneProcessor()
	testenv.Main(m)
}

// who is a caller.
type who struct {
	name  string
	uid   uint32
	admin bool
}

func (w who) owner() string { return fmt.Sprint("uid:", w.uid) }

// canary returns the text that is in everything that a caller has saved.
func (w who) canary() string { return fmt.Sprint("canary-", w.uid) }

var (
	owner         = who{"owner", 61001, false}
	stranger      = who{"stranger", 61002, false}
	neighbour     = who{"neighbour", 61003, false}
	administrator = who{"administrator", 0, true}
)

// door is how callers connect: it listens, and connects as a given caller.
type door interface {
	listener(t *testing.T) net.Listener
	dial(ctx context.Context, w who) (net.Conn, error)
}

// seam gives each connection the identity that the test names, in place of the
// kernel's report in internal/ipc/endpoint.
type seam struct {
	conns  chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

func newSeam() door {
	return seam{make(chan net.Conn), make(chan struct{}), new(sync.Once)}
}

func (s seam) listener(*testing.T) net.Listener { return s }
func (s seam) Close() error                     { s.once.Do(func() { close(s.closed) }); return nil }
func (s seam) Addr() net.Addr                   { return &net.UnixAddr{Name: "seam", Net: "unix"} }

func (s seam) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

type namedConn struct {
	net.Conn
	peer endpoint.Peer
}

func (c namedConn) Peer() endpoint.Peer { return c.peer }

func (s seam) dial(ctx context.Context, w who) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case s.conns <- namedConn{theirs, endpoint.Peer{Owner: w.owner(), PID: os.Getpid(), Admin: w.admin}}:
		return mine, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// world is a real store behind a real server.
type world struct {
	t    *testing.T
	door door
	path string
	read *sql.DB
}

// newWorld opens a database, or creates it if it does not exist.
func newWorld(t *testing.T, d door, path string) *world {
	t.Helper()
	w := &world{t: t, door: d, path: path}
	store, err := db.Open(t.Context(), db.Options{Path: w.path, Retention: retention.Plan, Resume: resume.Make, Secrets: secrets.Scan{}, Drift: drift.New(), ReserveBytes: -1, Version: "test"})
	must(t, err)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })
	api := server.NewServer(server.Options{Store: server.StoreOf(store), Metrics: metrics, Settings: func() []survey.Setting { return nil }, Version: "test"})
	done := make(chan error, 1)
	ln := d.listener(t)
	go func() { done <- api.Serve(context.Background(), ln) }()
	w.read, err = sql.Open("sqlite", "file:"+w.path+"?mode=ro&_pragma=busy_timeout(5000)")
	must(t, err)
	t.Cleanup(func() {
		_ = w.read.Close()
		_ = api.Shutdown(context.Background())
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer is the answer to a caller.
type answer struct {
	status int
	body   string
}

// request is a request that is ready to be sent.
type request struct {
	method, target, contentType, body string
	header                            map[string]string
	follows                           bool // its answer does not end
}

// ask sends a request as a caller.
func (w *world) ask(by who, r request) answer {
	w.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.door.dial(ctx, by) }}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(w.t.Context(), r.method, "http://daemon"+r.target, strings.NewReader(r.body))
	must(w.t, err)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := transport.RoundTrip(req)
	must(w.t, err)
	defer resp.Body.Close()
	var body []byte
	if r.follows && resp.StatusCode == http.StatusOK {
		body = make([]byte, 1)
		var n int
		for !bytes.HasSuffix(body, []byte("\n")) && err == nil { // the first event
			part := make([]byte, 4096)
			n, err = resp.Body.Read(part)
			body = append(body, part[:n]...)
		}
	} else {
		body, err = io.ReadAll(resp.Body)
	}
	must(w.t, err)
	return answer{resp.StatusCode, string(body)}
}

// names are the values for the braces of a row.
type names map[string]string

// fill puts names into a row.
func (r *row) fill(n names, naming string) request {
	n = mapped(n, r)
	put := func(text string, escape func(string) string) string {
		for name, value := range n {
			text = strings.ReplaceAll(text, "{"+name+"}", escape(value))
		}
		return text
	}
	asIs := func(s string) string { return s }
	target := put(r.path, url.PathEscape)
	query := put(r.query, url.QueryEscape)
	if naming != "" {
		query = strings.TrimPrefix(query+"&owner="+url.QueryEscape(naming), "&")
	}
	if query != "" {
		target += "?" + query
	}
	req := request{method: r.method, target: target, contentType: r.contentType, body: put(r.body, asIs), header: map[string]string{}, follows: strings.Contains(r.query, "follow=true")}
	for name, value := range r.header {
		req.header[name] = put(value, asIs)
	}
	return req
}

// mapped returns the names as a row means them: in the path of a prompt, {id}
// is the id of a prompt.
func mapped(n names, r *row) names {
	m := names{}
	for name, value := range n {
		m[name] = value
	}
	switch {
	case strings.HasPrefix(r.path, "/v1/prompts/"):
		m["id"] = n["prompt"]
	case strings.HasPrefix(r.path, "/v1/findings/"):
		m["id"] = n["finding"]
	case r.path == oneSave:
		m["id"] = n["new"]
	default:
		m["id"] = n["known"]
	}
	m["a"], m["b"] = n["known"], n["warm"]
	m["sha256"], m["n"] = n["content"], "7"
	m["key"] = n["operation"]
	switch {
	case strings.Contains(r.path, "/steps/"):
		m["key"] = n["step"]
	case strings.HasSuffix(r.path, "/resolve"):
		m["key"] = n["uncertain"]
	}
	m["run"] = "work"
	if r.run != "" {
		m["run"] = r.run
	}
	return m
}

// hide puts the braces back, so that answers about different things can be
// compared.
func (n names) hide(r *row, text string) string {
	m := mapped(n, r)
	keys := make([]string, 0, len(m))
	for name := range m {
		if len(m[name]) > 5 {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	for _, name := range keys {
		text = strings.ReplaceAll(text, m[name], "{"+n.kindOf(name)+"}")
	}
	return text
}

// kindOf maps names that can have the same value to one name.
func (names) kindOf(name string) string {
	switch name {
	case "known", "warm", "id", "a", "b", "prompt", "finding", "new":
		return "id"
	}
	return strings.Replace(name, "sha256", "content", 1)
}

// missingNames returns names that do not exist.
func missingNames(n names) names {
	m := names{}
	for name, value := range n {
		m[name] = value
	}
	m["agent"] = "nobodys"
	for i, name := range []string{"known", "warm", "prompt", "finding"} {
		m[name] = fmt.Sprintf("019cad25-8e6c-7a5f-9d0e-3f2f6d3cff%02x", i)
	}
	m["token"] = "00000000000000ff"
	m["content"], m["tree"] = strings.Repeat("ef", 32), strings.Repeat("fe", 32)
	return m
}

// fixture is a database in which the owner and the neighbor have one of each
// thing, under the same names.
type fixture struct {
	path               string
	theOwner, theOther names
}

// state returns a large state, so that it is kept in pieces and in memory.
func state(w who, n int) string {
	return fmt.Sprintf(`{"n":%d,"canary":%q,"text":%q}`, n, w.canary(), strings.Repeat("lorem ipsum ", 600))
}

func newFixture(t *testing.T, d func() door) *fixture {
	t.Helper()
	f := &fixture{path: filepath.Join(t.TempDir(), "ckpt.db")}
	if !t.Run("making what they have", func(t *testing.T) {
		w := newWorld(t, d(), f.path)
		f.theOwner, f.theOther = w.settle(owner), w.settle(neighbour)
	}) {
		t.FailNow()
	}
	return f
}

// copied returns a separate world with everything that the fixture has.
func (f *fixture) copied(t *testing.T, d door) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(f.path + suffix)
		if os.IsNotExist(err) {
			continue
		}
		must(t, err)
		must(t, os.WriteFile(path+suffix, b, 0o600))
	}
	return newWorld(t, d, path)
}

// settle makes one of each thing for a caller and returns their names.
func (w *world) settle(by who) names {
	w.t.Helper()
	c := by.canary()
	n := names{"owner": by.owner(), "agent": "assistant", "thread": "thread-1", "step": "step-1", "done": "step-2", "operation": "operation-1", "uncertain": "operation-2"}
	n["known"] = fmt.Sprintf("019cad25-8e6c-7a5f-9d0e-%012d", by.uid)
	n["warm"] = fmt.Sprintf("019cad25-8e6d-7a5f-9d0e-%012d", by.uid)
	n["sum"], n["size"] = hashed(state(by, 1))
	n["warmsum"], n["warmsize"] = hashed(state(by, 2))
	post := func(path, body string) string {
		w.t.Helper()
		return w.want(by, request{method: "POST", target: path, contentType: ckpt.ContentTypeJSON, body: body})
	}
	const a = "/v1/agents/assistant"
	w.want(by, request{method: "PUT", target: a + "/policy", contentType: ckpt.ContentTypeJSON, body: fmt.Sprintf(`{"routine_keep":9,"rules":[{"name":%q,"when":"true","severity":"warn"}]}`, c)})
	post(a+"/runs", fmt.Sprintf(`{"run":"work","workflow":%[1]q,"goal":%[1]q,"external_session":%[1]q,"labels":{"of":%[1]q}}`, c))
	w.want(by, request{method: "PUT", target: a + "/checkpoints/" + n["known"] + "?kind=recovery&run=work&step=s&label=of%3D" + url.QueryEscape(c), contentType: ckpt.ContentTypeJSON, body: state(by, 1),
		header: map[string]string{"Ckpt-Metadata": fmt.Sprintf(`{"m":%q}`, c)}})
	w.want(by, request{method: "PUT", target: a + "/checkpoints/" + n["warm"] + "?kind=routine&run=work", contentType: ckpt.ContentTypeJSON, body: state(by, 2)})
	post(a+"/runs/work/steps", fmt.Sprintf(`{"key":"step-1","name":%[1]q,"args":{"a":%[1]q}}`, c))
	post(a+"/runs/work/steps", fmt.Sprintf(`{"key":"step-2","name":%[1]q,"status":"succeeded","result":%[1]q}`, c))
	post(a+"/runs/work/operations", fmt.Sprintf(`{"key":"operation-1","name":%[1]q,"state":{"b":%[1]q}}`, c))
	post(a+"/runs/work/events", fmt.Sprintf(`[{"type":"note","payload":{"e":%q}}]`, c))
	var finding ckpt.PostedFinding
	must(w.t, json.Unmarshal([]byte(post(a+"/drift/findings", fmt.Sprintf(`{"rule":"tired","severity":"warn","message":%[1]q,"advice":%[1]q,"evidence":{"e":%[1]q},"run":"work"}`, c))), &finding))
	n["finding"] = finding.ID
	post(a+"/runs", fmt.Sprintf(`{"run":"asked","goal":%q}`, c))
	post(a+"/runs/asked/operations", fmt.Sprintf(`{"key":"operation-2","name":%[1]q,"state":{"b":%[1]q}}`, c))
	var plan ckpt.Plan
	must(w.t, json.Unmarshal([]byte(post(a+"/runs/asked/resume", `{"force":true}`)), &plan))
	if plan.Prompt == nil {
		w.t.Fatalf("there is no prompt: %+v", plan)
	}
	n["prompt"] = plan.Prompt.ID
	n["token"] = "00000000000000a1"
	w.want(by, request{method: "PUT", target: "/v1/tokens/" + n["token"], contentType: ckpt.ContentTypeJSON, body: fmt.Sprintf(`{"sha256":%q,"note":%q}`, strings.Repeat("0", 64), c)})
	n["content"], n["contentsize"] = hashed(c)
	w.want(by, request{method: "POST", target: a + "/contents", contentType: contents, body: n["content"] + " " + n["contentsize"] + " -\n" + c})
	var planted ckpt.TreeStored
	must(w.t, json.Unmarshal([]byte(post(a+"/trees", fmt.Sprintf(`{"root":"/%[1]s","captured_at":null,"complete":true,"set":[{"path":%[1]q,"mode":"0644","size":%[3]s,"sha256":%[2]q}]}`,
		c, n["content"], n["contentsize"]))), &planted))
	n["tree"] = planted.ID
	for _, id := range []string{n["known"], n["warm"]} {
		post("/v1/checkpoints/"+id+"/tree", fmt.Sprintf(`{"trees":[%q]}`, planted.ID))
	}
	put := strings.ReplaceAll(strings.ReplaceAll(putFrame, "{thread}", n["thread"]), `"id":"9"`, `"id":"1"`)
	value := fmt.Sprintf("%q", c)
	put = strings.Replace(strings.Replace(put, `"length":3`, fmt.Sprintf(`"length":%d`, len(value)), 1), "\n"+`"x"`, "\n"+value, 1)
	w.want(by, request{method: "POST", target: a + "/graph/put", contentType: framed, body: put})
	w.want(by, request{method: "POST", target: a + "/graph/put", contentType: framed, body: `{"thread":"thread-1","parent":"1","checkpoint":{"v":4,"id":"2","channel_versions":{"a":1}},"carry":["a"]}` + "\n"})
	n["export"] = w.want(by, request{method: "GET", target: a + "/export"})
	return n
}

func hashed(state string) (sum, size string) {
	h := sha256.Sum256([]byte(state))
	return hex.EncodeToString(h[:]), fmt.Sprint(len(state))
}

// want sends a request that must succeed.
func (w *world) want(by who, r request) string {
	w.t.Helper()
	got := w.ask(by, r)
	if got.status/100 != 2 {
		w.t.Fatalf("%s %s: %d %s", r.method, r.target, got.status, got.body)
	}
	return got.body
}

// of returns everything that a user has, as an auditor sees it.
func (w *world) of(someone who) string {
	w.t.Helper()
	var all strings.Builder
	for _, view := range []string{"agents", "runs", "checkpoints", "steps", "operations", "findings", "prompts", "events", "graph_checkpoints"} {
		list, err := w.read.Query(`SELECT * FROM audit_`+view+` WHERE owner = ?`, someone.owner())
		must(w.t, err)
		columns, err := list.Columns()
		must(w.t, err)
		for list.Next() {
			values, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				to[i] = &values[i]
			}
			must(w.t, list.Scan(to...))
			fmt.Fprintln(&all, view, values)
		}
		must(w.t, list.Err())
	}
	return all.String()
}

// told counts the audit rows of one user about another.
func (w *world) told(by, about who) (rows int) {
	w.t.Helper()
	must(w.t, w.read.QueryRow(`SELECT count(*) FROM audit_log WHERE who = ? AND owner = ?`, by.owner(), about.owner()).Scan(&rows))
	return rows
}
