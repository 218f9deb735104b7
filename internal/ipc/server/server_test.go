package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

func TestPathsAndMethods(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/", "/v1", "/v2/agents", "/v1/agents/", "/v1//agents", "/v1/agents/../agents", "/v1/./agents", "/v1/agents/a/nothing", "/V1/agents"} {
		r := w.send("GET", path, "")
		expect.Equal(t, path, r.status, 404)
		expect.Equal(t, path, r.problem(t).Code, ckpt.CodeNotFound)
	}
	r := w.send("DELETE", saves, "")
	expect.Equal(t, "status", r.status, 405)
	expect.Equal(t, "code", r.problem(t).Code, ckpt.CodeInvalid)
	expect.Equal(t, "status inside", r.problem(t).Status, 405)
	expect.Equal(t, "Allow", r.header.Get("Allow"), "GET, HEAD, OPTIONS, POST")
	expect.Equal(t, "latest takes no PUT as an id", w.send("PUT", saves+"/latest?kind=routine", "x").status, 405)
	expect.Equal(t, "an odd method", w.send("BREW", "/healthz", "").status, 405)

	r = w.send("OPTIONS", "/v1/checkpoints/"+id1, "")
	expect.Equal(t, "OPTIONS", r.status, 204)
	expect.Equal(t, "Allow", r.header.Get("Allow"), "DELETE, GET, HEAD, OPTIONS, PATCH")
	expect.Equal(t, "no CORS", r.header.Get("Access-Control-Allow-Origin"), "")
	expect.Equal(t, "OPTIONS *", w.send("OPTIONS", "*", "").status, 404)

	saved := w.save("a", `{"x":1}`)
	r = w.send("HEAD", "/v1/checkpoints/"+saved.ID+"/state", "")
	expect.Equal(t, "HEAD", r.status, 200)
	expect.Equal(t, "HEAD's hash", r.header.Get("Ckpt-Sha256"), saved.SHA256)
	expect.Equal(t, "HEAD's length", r.header.Get("Content-Length"), "7")
	expect.Equal(t, "HEAD's body", r.body, "")
	expect.Equal(t, "HEAD of nothing", w.send("HEAD", "/v1/checkpoints/"+id1, "").status, 404)
}

// TestNoRouteTakesAnUnknownParameter: every route refuses an unknown parameter,
// and names it.
func TestNoRouteTakesAnUnknownParameter(t *testing.T) {
	w := newWorld(t)
	fill := strings.NewReplacer("{agent}", "a", "{id}", id1, "{a}", id1, "{b}", id2, "{run}", "r", "{key}", "k", "{n}", "1", "{token}", "00000000000000a1")
	for _, rt := range Routes() {
		r := w.send(rt.Method, fill.Replace(rt.Path)+"?colour=red", "")
		expect.Equal(t, rt.Method+" "+rt.Path, r.status, 400)
		if !strings.Contains(r.problem(t).Detail, "colour") {
			t.Error(r.body)
		}
	}
}

// TestNoRouteTakesABadName: every route checks the names in its path, before
// anything else.
func TestNoRouteTakesABadName(t *testing.T) {
	w := newWorld(t)
	fill := strings.NewReplacer("{agent}", "-a", "{id}", "x", "{a}", "X", "{b}", id2)
	for _, rt := range Routes() {
		if !strings.Contains(rt.Path, "{") {
			continue
		}
		r := w.send(rt.Method, fill.Replace(rt.Path)+"?colour=red", "")
		expect.Equal(t, rt.Method+" "+rt.Path, r.status, 400)
		if strings.Contains(r.problem(t).Detail, "colour") {
			t.Error(r.body)
		}
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, h := range []string{"Origin: http://evil.example", "Referer: http://evil.example/canary", "Origin: null", "Origin:"} {
		r := w.send("GET", "/healthz", "", h)
		expect.Equal(t, h, r.status, 403)
		expect.Equal(t, h, r.problem(t).Code, ckpt.CodeDenied)
		if strings.Contains(r.body, "evil") {
			t.Error(r.body)
		}
	}
	waitFor(t, func() bool { return len(w.refusals()) == 4 })
	for range 50 {
		w.send("GET", "/healthz", "", "Origin: x")
	}
	if n := len(w.refusals()); n > 20 {
		t.Errorf("a flood of refusals made %d rows", n)
	}
}

func TestOwners(t *testing.T) {
	w := newWorld(t)
	user := w.as("uid:1001", false)
	_, err := user.Save(t.Context(), &ckpt.SaveRequest{ID: id1, Agent: "a", Kind: ckpt.KindRoutine, State: []byte("x")})
	expect.OK(t, err)

	second := w.as("uid:1002", false)
	_, err = second.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, State: []byte("of another")})
	expect.OK(t, err)
	r := w.send("GET", "/v1/checkpoints/"+id1, "")
	expect.Equal(t, "another's", r.status, 404)
	missing := w.send("GET", "/v1/checkpoints/"+id2, "")
	expect.Equal(t, "the same reply", strings.ReplaceAll(r.body, id1, id2), missing.body)
	r = w.send("GET", saves+"?owner=uid:1001", "")
	expect.Equal(t, "by name", r.problem(t).Code, ckpt.CodeDenied)
	expect.Equal(t, "his own by name", w.send("GET", saves+"?owner=uid:1002", "").status, 200)
	expect.Equal(t, "metrics", w.send("GET", "/metrics", "").problem(t).Code, ckpt.CodeDenied)
	waitFor(t, func() bool { return len(w.refusals()) == 2 })
	rows := w.refusals()
	expect.Equal(t, "recorded", fmt.Sprintln(rows[0].Action, rows[0].Agent, rows[0].Who, rows[1].Action), "list a uid:1002 metrics\n")

	root := w.as("uid:0", true)
	root.Owner = "uid:1001"
	state, err := root.State(t.Context(), id1)
	expect.OK(t, err)
	expect.Equal(t, "root sees it", string(state), "x")
	for target, code := range map[string]ckpt.Code{
		saves + "?owner=nobody":               ckpt.CodeInvalid,
		saves + "?owner=*":                    ckpt.CodeInvalid,
		"/v1/agents?owner=*":                  "",
		"/v1/checkpoints/" + id1 + "?owner=*": "",
		"/metrics":                            ckpt.CodeNotFound,
	} {
		r := w.send("GET", target, "")
		if code == "" {
			expect.Equal(t, target, r.status, 200)
			continue
		}
		expect.Equal(t, target, r.problem(t).Code, code)
	}
	expect.Equal(t, "import for everybody", w.send("POST", "/v1/import?owner=*", "").problem(t).Code, ckpt.CodeInvalid)
}

func TestConnectionsWithoutIdentityAreClosed(t *testing.T) {
	dir, err := os.MkdirTemp("", "ipc")
	expect.OK(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "plain")
	ln, err := net.Listen("unix", path)
	expect.OK(t, err)
	s := NewServer(Options{Store: StoreOf(nowhere{})})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, ln) }()
	c, err := net.Dial("unix", path)
	expect.OK(t, err)
	defer c.Close()
	io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	if n, _ := io.Copy(io.Discard, c); n != 0 {
		t.Errorf("%d bytes came", n)
	}
	cancel()
	expect.OK(t, <-done)
}

func TestPanicsAreAnswered(t *testing.T) {
	w := newWorld(t)
	w.store.onSave = func(context.Context, *ckpt.SaveRequest) error { panic("boom") }
	w.store.onRead = func(context.Context) error { var none *int; _ = *none; return nil }
	p := w.send("PUT", saves+"/"+id1+"?kind=routine", "canary-payload").problem(t)
	expect.Equal(t, "code", p.Code, ckpt.CodeInternal)
	expect.Equal(t, "outcome of a write", p.Outcome, ckpt.OutcomeUnknown)
	p = w.send("GET", saves, "").problem(t)
	expect.Equal(t, "outcome of a read", p.Outcome, ckpt.OutcomeNotSaved)
	expect.Equal(t, "counted", w.server.Stats().Panics, int64(2))
	if log := w.log.String(); !strings.Contains(log, "boom") || !strings.Contains(log, "server_test.go") || strings.Contains(log, "canary") {
		t.Error(log)
	}
	expect.Equal(t, "in work", w.server.Stats().InWork, int64(0))
	expect.Equal(t, "it goes on", w.send("GET", "/healthz", "").status, 200)
}

// TestCanariesStayWhereTheyAre: secrets in payload, key, header and label must
// not appear anywhere else.
func TestCanariesStayWhereTheyAre(t *testing.T) {
	w := newWorld(t)
	w.store.onSave = func(_ context.Context, r *ckpt.SaveRequest) error {
		return errors.New("cause of the store, for the log")
	}
	const canary = "sk-canary-4711"
	replies := []reply{
		w.send("POST", saves, `{"kind":"routine","state":{"key":"`+canary+`"}}`, "Content-Type: application/json", "Authorization: Bearer "+canary),
		w.send("POST", saves, `{"kind":"routine","state":{"key":"`+canary+`",}}`, "Content-Type: application/json"),
		w.send("POST", saves, `{"kind":"routine","state":1,"epoch":"`+canary+`"}`, "Content-Type: application/json"),
		w.send("POST", saves+"?kind=routine&label=a="+canary, canary, "Ckpt-Metadata: {\"t\":\""+canary+"\"}", "Cookie: "+canary),
		w.send("POST", saves+"?kind=routine", canary, "Ckpt-Metadata: {\"t\":\""+canary+"\",}"),
		w.send("POST", saves+"?kind=routine&label="+canary, canary),
		w.send("POST", saves+"?kind=routine&epoch="+canary, canary),
		w.send("PATCH", "/v1/checkpoints/"+id1, `{"labels":{"a":"`+canary+`"},"x":1}`),
	}
	for _, r := range replies {
		if r.status < 400 || strings.Contains(r.body, canary) {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if strings.Contains(replies[0].body, "cause of the store") {
		t.Error("the cause is in the reply")
	}
	if log := w.log.String(); strings.Contains(log, canary) || !strings.Contains(log, "cause of the store") {
		t.Error(log)
	}
}

func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	w := newWorld(t)
	started, release := make(chan struct{}, 8), make(chan struct{})
	w.store.onSave = func(context.Context, *ckpt.SaveRequest) error {
		started <- struct{}{}
		<-release
		return nil
	}
	idle := w.as("uid:5", false)
	expect.OK(t, idle.Health(t.Context()))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := &client.Client{Socket: w.path}
			defer c.Close()
			_, err := c.Save(context.Background(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, State: []byte("x")})
			expect.OK(t, err)
		})
	}
	for range 8 {
		<-started
	}
	stopped := make(chan error)
	go func() { stopped <- w.server.Shutdown(context.Background()) }()
	waitFor(t, func() bool { return errors.As(dialError(w.path), new(*endpoint.DialError)) })
	select {
	case <-stopped:
		t.Fatal("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	wg.Wait()
	expect.OK(t, <-stopped)
	expect.Equal(t, "saved", len(w.stored("a")), 8)
}

func dialError(path string) error {
	c, err := endpoint.Dial(context.Background(), path)
	if err == nil {
		c.Close()
	}
	return err
}

func TestShutdownIsBounded(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	w.store.onSave = func(context.Context, *ckpt.SaveRequest) error { <-release; return nil }
	result := make(chan error, 1)
	go func() {
		_, err := w.client.Save(context.Background(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, State: []byte("x")})
		result <- err
	}()
	waitFor(t, func() bool { return w.server.Stats().InWork == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	expect.Equal(t, "the end", errors.Is(w.server.Shutdown(ctx), context.DeadlineExceeded), true)
	err := <-result
	expect.Code(t, err, ckpt.CodeBusy)
	expect.Equal(t, "outcome", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	close(release)
	waitFor(t, func() bool { return w.server.Stats().InWork == 0 })
	w.cut = true
}

func TestServeEndsWithItsContext(t *testing.T) {
	dir, err := os.MkdirTemp("", "ipc")
	expect.OK(t, err)
	defer os.RemoveAll(dir)
	ln, err := endpoint.Listen(t.Context(), endpoint.Options{Path: filepath.Join(dir, "s"), SingleUser: true})
	expect.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	s := NewServer(Options{Store: StoreOf(nowhere{})})
	go func() { done <- s.Serve(ctx, ln) }()
	c := &client.Client{Socket: filepath.Join(dir, "s")}
	defer c.Close()
	expect.OK(t, c.Health(t.Context()))
	cancel()
	expect.OK(t, <-done)
}

func TestServiceCalls(t *testing.T) {
	ready := error(nil)
	var seen []Observation
	w := newWorld(t, func(o *Options) {
		o.Ready = func(context.Context) error { return ready }
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") })
		o.Observe = func(ob Observation) { seen = append(seen, ob) }
	})
	c := w.as("uid:0", true)
	ctx := t.Context()
	expect.OK(t, c.Health(ctx))
	expect.OK(t, c.Ready(ctx))
	v, err := c.Version(ctx)
	expect.OK(t, err)
	expect.Equal(t, "version", *v, ckpt.Version{Name: "ckptsidecar", Version: "v-test", API: 1, Schema: ckpt.SchemaVersion})
	st, err := c.Status(ctx)
	expect.OK(t, err)
	expect.Equal(t, "state", st.State, "ready")
	expect.Equal(t, "metrics", w.send("GET", "/metrics", "").body, "up 1\n")
	for range 2 {
		_, err = c.Save(ctx, &routine)
		expect.OK(t, err)
	}
	page, err := c.Audit(ctx, ckpt.AuditFilter{Agent: "a", Action: "save", Limit: 10})
	expect.OK(t, err)
	expect.Equal(t, "saves in the audit log", len(page.Audit), 2)
	expect.Equal(t, "audit", page.Audit[0].Who, "uid:0")
	later, err := c.Audit(ctx, ckpt.AuditFilter{Agent: "a", Action: "save", After: page.Audit[0].N})
	expect.OK(t, err)
	expect.Equal(t, "after the first", len(later.Audit), 1)

	ready = errors.New("opening")
	err = c.Ready(ctx)
	expect.Code(t, err, ckpt.CodeBusy)
	ready, w.store.notReady = nil, ckpt.Errorf(ckpt.CodeStorageFull, "the disk is full")
	expect.Code(t, c.Ready(ctx), ckpt.CodeStorageFull)
	expect.OK(t, c.Health(ctx))
	expect.Equal(t, "observed", seen[0].Route, "health")
	expect.Equal(t, "observed status", seen[len(seen)-2].Status, 507)
	expect.Equal(t, "observed code", seen[len(seen)-2].Code, ckpt.CodeStorageFull)
}

func TestAgentCalls(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	_, err := w.client.Policy(ctx, "a")
	expect.Code(t, err, ckpt.CodeNotFound)
	first := w.save("a", `1`)
	w.save("b", `1`)
	p, err := w.client.Policy(ctx, "a")
	expect.OK(t, err)
	if diff := cmp.Diff(ckpt.DefaultPolicy(), *p); diff != "" {
		t.Error(diff)
	}
	p.RoutineKeep = 1
	set, err := w.client.SetPolicy(ctx, "a", *p)
	expect.OK(t, err)
	expect.Equal(t, "set", set.RoutineKeep, 1)
	expect.Equal(t, "what the policy removes", fmt.Sprint(w.save("a", `2`).Pruned), "["+first.ID+"]")
	for _, body := range []string{`{"routine_keep":-1}`, `{"routine_kept":1}`, `[]`, ``, `{"recovery_keep":"soon"}`} {
		expect.Equal(t, body, w.send("PUT", "/v1/agents/a/policy", body).problem(t).Code, ckpt.CodeInvalid)
	}
	agents, err := w.client.Agents(ctx, ckpt.AgentFilter{Limit: 1})
	expect.OK(t, err)
	expect.Equal(t, "agents", agents.Agents[0].Agent, "a")
	agents, err = w.client.Agents(ctx, ckpt.AgentFilter{Before: string(agents.Next)})
	expect.OK(t, err)
	expect.Equal(t, "the next page", agents.Agents[0].Agent, "b")
	rep, _, err := w.client.Prune(ctx, ckpt.PruneRequest{Agent: "a", DryRun: true}, "dry")
	expect.OK(t, err)
	expect.Equal(t, "dry run", rep.DryRun, true)
	_, replayed, err := w.client.Prune(ctx, ckpt.PruneRequest{Agent: "a"}, "k")
	expect.OK(t, err)
	expect.Equal(t, "replayed", replayed, false)
	_, replayed, err = w.client.Prune(ctx, ckpt.PruneRequest{Agent: "a"}, "k")
	expect.OK(t, err)
	expect.Equal(t, "replayed", replayed, true)
	for _, body := range []string{``, `{"agent":"-"}`, `{"dry_run":1}`, `{"dry_run":true} 1`} {
		expect.Equal(t, body, w.send("POST", "/v1/prune", body).problem(t).Code, ckpt.CodeInvalid)
	}
	erased, err := w.client.Erase(ctx, "a")
	expect.OK(t, err)
	expect.Equal(t, "erased", erased.Agent, "a")
	expect.Equal(t, "what is left", len(w.stored("a"))+10*len(w.stored("b")), 10)
}

func TestCheckpointCalls(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	one, two := w.save("a", `{"n":1}`), w.save("a", `{"n":2}`)
	page, err := w.client.Checkpoints(ctx, ckpt.CheckpointFilter{Agent: "a", Run: "main", Kind: ckpt.KindRoutine, Suspect: new(bool), Limit: 1})
	expect.OK(t, err)
	expect.Equal(t, "listed", page.Checkpoints[0].ID, two.ID)
	page, err = w.client.Checkpoints(ctx, ckpt.CheckpointFilter{Agent: "a", Before: string(page.Next)})
	expect.OK(t, err)
	expect.Equal(t, "on the next page", page.Checkpoints[0].ID, one.ID)
	d, err := w.client.Diff(ctx, one.ID, two.ID)
	expect.OK(t, err)
	sameJSON(t, string(d.Patch), `[{"op":"replace","path":"/n","value":2}]`)
	labels, yes := ckpt.Labels{"x": "y"}, true
	ck, err := w.client.Patch(ctx, one.ID, ckpt.CheckpointPatch{Labels: &labels, Pinned: &yes})
	expect.OK(t, err)
	expect.Equal(t, "pinned", ck.Pinned && ck.Labels["x"] == "y", true)
	page, err = w.client.Checkpoints(ctx, ckpt.CheckpointFilter{Agent: "a", Labels: labels})
	expect.OK(t, err)
	expect.Equal(t, "with the label", fmt.Sprintln(len(page.Checkpoints), page.Checkpoints[0].ID), "1 "+one.ID+"\n")
	for _, body := range []string{`{}`, `{"pinned":"yes"}`, `{"labels":{"a b":"c"}}`, `{"id":"x"}`, `{"labels":null}`} {
		expect.Equal(t, body, w.send("PATCH", "/v1/checkpoints/"+one.ID, body).problem(t).Code, ckpt.CodeInvalid)
	}
	ck, err = w.client.Latest(ctx, ckpt.CheckpointFilter{Agent: "a", Run: "main", Kind: ckpt.KindRoutine, Suspect: new(bool)}, false)
	expect.OK(t, err)
	expect.Equal(t, "latest", ck.ID, two.ID)
	_, err = w.client.Delete(ctx, one.ID)
	expect.Code(t, err, ckpt.CodeConflict) // because it is pinned
	yes = false
	_, err = w.client.Patch(ctx, one.ID, ckpt.CheckpointPatch{Pinned: &yes})
	expect.OK(t, err)
	removal, err := w.client.Delete(ctx, one.ID)
	expect.OK(t, err)
	expect.Equal(t, "removed", removal.Checkpoint, one.ID)
	_, err = w.client.Delete(ctx, one.ID)
	expect.Code(t, err, ckpt.CodeNotFound)
	binary, err := w.client.Save(ctx, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: "x/y", State: []byte("x")})
	expect.OK(t, err)
	_, err = w.client.Diff(ctx, two.ID, binary.ID)
	expect.Code(t, err, ckpt.CodeConflict)
}

func TestRestoreRequests(t *testing.T) {
	w := newWorld(t)
	saved := w.save("a", `1`)
	ck, _, err := w.client.Restore(t.Context(), ckpt.RestoreRequest{Agent: "a", Checkpoint: saved.ID, Run: "main", Reason: "because", IdempotencyKey: "k"})
	expect.OK(t, err)
	expect.Equal(t, "restored", ck.ID, saved.ID)
	expect.Equal(t, "asked", w.store.restored[0], ckpt.RestoreRequest{Agent: "a", Checkpoint: saved.ID, Run: "main", Reason: "because", IdempotencyKey: "k"})
	expect.Equal(t, "an empty body", w.send("POST", "/v1/agents/a/restore", "").status, 200)
	for _, body := range []string{
		`{"checkpoint":"x"}`, `{"checkpoint":"` + saved.ID + `","clean":true}`, `{"kind":"x"}`, `{"run":"/"}`, `{"reason":"\u0000"}`,
		`{"reason":"` + strings.Repeat("x", 1025) + `"}`, `{"agent":"b"}`, `{"Checkpoint":"x"}`, `null x`,
	} {
		expect.Equal(t, body, w.send("POST", "/v1/agents/a/restore", body).problem(t).Code, ckpt.CodeInvalid)
	}
}

func TestExportAndImport(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		w.save("a", itoa(n))
	}
	var b strings.Builder
	expect.OK(t, w.client.Export(t.Context(), "a", &b))
	report, err := w.client.Import(t.Context(), ckpt.ImportRequest{Agent: "copy"}, strings.NewReader(b.String()))
	expect.OK(t, err)
	expect.Equal(t, "agent", report.Agent, "copy")
	expect.Equal(t, "imported", report.Imported, 3)
	latest, err := w.client.Latest(t.Context(), ckpt.CheckpointFilter{Agent: "copy"}, true)
	expect.OK(t, err)
	expect.Equal(t, "the newest state", string(latest.State), "2")

	expect.Code(t, w.client.Export(t.Context(), "nobody", io.Discard), ckpt.CodeNotFound)
	w.store.onExport = func(to io.Writer) error {
		io.WriteString(to, strings.Repeat("line\n", 5000))
		return ckpt.Errorf(ckpt.CodeCorrupt, "a state is damaged")
	}
	b.Reset()
	err = w.client.Export(t.Context(), "a", &b)
	expect.Code(t, err, ckpt.CodeBusy)
	if b.Len() == 0 || !strings.Contains(w.log.String(), "a state is damaged") {
		t.Errorf("%d bytes; log %s", b.Len(), w.log)
	}
	full := errors.New("disk full")
	expect.Equal(t, "the writer's own error", w.client.Export(t.Context(), "a", failing{full}), full)
	_, err = w.client.Import(t.Context(), ckpt.ImportRequest{Agent: "-"}, strings.NewReader("x"))
	expect.Code(t, err, ckpt.CodeInvalid)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
