package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// api is a server over a real store. Every answer is compared with the description.
type api struct {
	t     *testing.T
	doc   *description
	ask   http.Handler
	store *db.Store
}

func newAPI(t *testing.T) *api {
	t.Helper()
	store, err := db.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: retention.Plan, Resume: resume.Make, Fits: drift.Fits, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, "up 1\n")
	})
	server := server.NewServer(server.Options{Store: server.StoreOf(store), Version: "test", Metrics: metrics, Settings: func() []survey.Setting { return []survey.Setting{{Key: "backup.keep", Value: "7"}} }, Limits: server.Limits{MaxBody: 1 << 20}})
	return &api{t, readDescription(t), server.HandlerFor(ckpt.Caller{Owner: "uid:0", PID: 1, Admin: true}), store}
}

// as returns the same server, called by another caller.
func (a *api) as(caller ckpt.Caller) *api {
	copied := *a
	copied.ask = server.NewServer(server.Options{Store: server.StoreOf(a.store)}).HandlerFor(caller)
	return &copied
}

type request struct {
	method, target, body, contentType string
	header                            map[string]string
}

func get(target string) request { return request{method: "GET", target: target} }
func del(target string) request { return request{method: "DELETE", target: target} }
func post(target, body string) request {
	return request{"POST", target, body, ckpt.ContentTypeJSON, nil}
}
func put(target, body string) request { return request{"PUT", target, body, ckpt.ContentTypeJSON, nil} }
func patch(target, body string) request {
	return request{"PATCH", target, body, ckpt.ContentTypeJSON, nil}
}
func (r request) of(contentType string) request { r.contentType = contentType; return r }
func (r request) with(name, value string) request {
	r.header = map[string]string{name: value}
	return r
}

func (r request) http() *http.Request {
	req := httptest.NewRequest(r.method, r.target, strings.NewReader(r.body))
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	return req
}

// want sends a request and compares the answer with the description. A request that was accepted must match the
// description too.
func (a *api) want(status int, r request) string {
	a.t.Helper()
	got, body := a.answer(r)
	if got != status {
		a.t.Errorf("%s %s answers %d, want %d: %s", r.method, r.target, got, status, body)
	}
	return body
}

func (a *api) answer(r request) (status int, body string) {
	a.t.Helper()
	rec := httptest.NewRecorder()
	a.ask.ServeHTTP(rec, r.http())
	name := r.method + " " + r.target
	body = rec.Body.String()
	ok, errs := a.doc.answered(r.http(), rec.Result())
	if !ok {
		a.t.Errorf("the answer to %s is not as described: %d %s\n%s", name, rec.Code, body, explain(errs))
	}
	if rec.Code < 300 {
		if ok, errs := a.doc.asked(r.http()); !ok {
			a.t.Errorf("%s was taken and is not as described:\n%s", name, explain(errs))
		}
	}
	return rec.Code, body
}

// notModified requests an overview again with its ETag. If a new bin begins between the two requests, the overview
// differs, and it is requested once more.
func (a *api) notModified(target string) {
	a.t.Helper()
	overview := a.want(200, get(target))
	for range 3 {
		_, etag, _ := strings.Cut(overview, `{"etag":"`)
		etag, _, _ = strings.Cut(etag, `"`)
		status, body := a.answer(get(target).with("If-None-Match", `"other", W/"`+etag+`"`))
		if status == 304 {
			return
		}
		overview = body
	}
	a.t.Errorf("GET %s answers an overview each time, although its ETag is known: %s", target, overview)
}

func explain[E error](errs []E) string {
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintln(&b, " ", e)
	}
	return b.String()
}

const (
	idA = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a01"
	idB = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a02"
	idC = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a03"
	idD = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a04"
	idZ = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1aff" // no checkpoint has it

	saves = "/v1/agents/a/checkpoints"
)

func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	t.Run("saving", func(t *testing.T) { a.within(t).saving() })
	t.Run("reading", func(t *testing.T) { a.within(t).reading() })
	t.Run("changing", func(t *testing.T) { a.within(t).changing() })
	t.Run("agents", func(t *testing.T) { a.within(t).agents() })
	t.Run("runs", func(t *testing.T) { a.within(t).runs() })
	t.Run("drift", func(t *testing.T) { a.within(t).drift() })
	t.Run("files", func(t *testing.T) { a.within(t).files() })
	t.Run("langgraph", func(t *testing.T) { a.within(t).langgraph() })
	t.Run("daemon", func(t *testing.T) { a.within(t).daemon() })
	t.Run("refusals", func(t *testing.T) { a.within(t).refusals() })
}

func (a *api) within(t *testing.T) *api {
	copied := *a
	copied.t = t
	return &copied
}

func (a *api) saving() {
	a.want(201, post(saves, `{"kind":"routine","state":{"step":0}}`).with("Idempotency-Key", "k1"))
	a.want(201, post(saves, `{"kind":"routine","state":{"step":0}}`).with("Idempotency-Key", "k1")) // replayed
	a.want(422, post(saves, `{"kind":"routine","state":{"step":1}}`).with("Idempotency-Key", "k1"))
	a.want(201, post(saves, `{"kind":"recovery","state":[1,null],"run":"r","labels":{"a":"b"},"metadata":{"m":[1]},"program":{"source":"a\nb","executed":2}}`))
	a.want(201, put(saves+"/"+idA+"?kind=routine", `{"step":1}`))
	a.want(201, put(saves+"/"+idA+"?kind=routine", `{"step":1}`)) // replayed
	a.want(422, put(saves+"/"+idA+"?kind=routine", `{"step":2}`))
	a.want(201, put(saves+"/"+idB+"?kind=pre_operation&run=r&epoch=1&parent="+idA+"&step=s1&label=a%3Db&label=c%3Dd", `{"step":2}`).
		with("Ckpt-Metadata", `{"m":1}`).with("Ckpt-Program", `{"source":"x","executed":1}`))
	a.want(201, put(saves+"/"+idC+"?kind=routine", "\x00raw\xff").of("application/x-pickle"))
	a.want(201, post(saves+"?kind=recovery", "raw").of("text/plain"))
	a.want(201, post(saves+"?kind=recovery&base="+idA, `{"more":true}`).of("application/merge-patch+json"))
	a.want(201, post(saves+"?kind=recovery&base="+idA, `[{"op":"add","path":"/x","value":[]}]`).of("application/json-patch+json"))
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(`{"step":1}`)))
	a.want(201, post(saves+"?kind=recovery&base="+idA, "[[0,8],2]\n8}").of("application/vnd.ckptsidecar.delta").with("Ckpt-Base-Sha256", sum))
	a.want(201, put(saves+"/"+idD+"?kind=recovery&content_type=text%2Fplain&base="+idA, "[[0,8],2]\n9}").of("application/vnd.ckptsidecar.delta").with("Ckpt-Base-Sha256", sum))
	for range 4 {
		a.want(201, post(saves, `{"kind":"routine","state":null,"run":"pruned"}`))
	}

	a.want(400, post(saves, `{"kind":"routine"}`))
	a.want(400, post(saves, `{"kind":"other","state":1}`))
	a.want(400, post(saves, `{"kind":"routine","state":1,"state":2}`))
	a.want(400, post(saves+"?kind=routine", `{"kind":"routine","state":1}`))
	a.want(400, put(saves+"/"+idZ, `1`))
	a.want(400, put(saves+"/"+idZ+"?kind=routine&base="+idA, `1`))
	a.want(400, put(saves+"/not-an-id?kind=routine", `1`))
	a.want(404, put(saves+"/"+idZ+"?kind=routine&parent="+idZ, `1`))
	a.want(409, post(saves+"?kind=routine&base="+idZ, `{}`).of("application/merge-patch+json"))
	a.want(409, post(saves+"?kind=routine&base="+idA, `[{"op":"remove","path":"/none"}]`).of("application/json-patch+json"))
	a.want(400, put(saves+"/"+idZ+"?kind=routine&base="+idA, `[]`).of("application/vnd.ckptsidecar.delta"))
	a.want(409, put(saves+"/"+idZ+"?kind=routine&base="+idA, "[]\n").of("application/vnd.ckptsidecar.delta").with("Ckpt-Base-Sha256", strings.Repeat("0", 64)))
	a.want(413, put(saves+"/"+idZ+"?kind=routine", `"`+strings.Repeat("x", 1<<20)+`"`))
}

func (a *api) reading() {
	a.want(200, get(saves))
	page := a.want(200, get(saves+"?limit=1&kind=recovery"))
	var first ckpt.CheckpointPage
	if err := json.Unmarshal([]byte(page), &first); err != nil || first.Next == "" {
		a.t.Fatalf("no next page: %v %s", err, page)
	}
	a.want(200, get(saves+"?limit=1&kind=recovery&before="+string(first.Next)))
	a.want(200, get(saves+"?run=r&label=a%3Db&suspect=false"))
	a.want(400, get(saves+"?before=."))
	a.want(400, get(saves+"?limit=1001"))
	a.want(404, get("/v1/agents/nobody/checkpoints"))

	a.want(200, get(saves+"/latest"))
	a.want(200, get(saves+"/latest?run=r&kind=pre_operation&clean=true&state=false"))
	a.want(404, get(saves+"/latest?run=none"))
	a.want(400, get(saves+"/latest?clean=yes"))

	a.want(200, get("/v1/checkpoints/"+idA))
	a.want(200, get("/v1/checkpoints/"+idA+"?state=false"))
	a.want(200, get("/v1/checkpoints/"+idB))
	a.want(200, get("/v1/checkpoints/"+idC)) // its state comes as base64
	a.want(404, get("/v1/checkpoints/"+idZ))
	a.want(400, get("/v1/checkpoints/x"))
	a.want(200, get("/v1/checkpoints/"+idA+"/state"))
	a.want(404, get("/v1/checkpoints/"+idZ+"/state"))

	a.want(200, get("/v1/checkpoints/"+idA+"/diff/"+idB))
	a.want(200, get("/v1/checkpoints/"+idA+"/diff/"+idA))
	a.want(409, get("/v1/checkpoints/"+idA+"/diff/"+idC))
	a.want(404, get("/v1/checkpoints/"+idA+"/diff/"+idZ))

	a.want(200, post("/v1/agents/a/restore", `{}`))
	a.want(200, post("/v1/agents/a/restore", `{"kind":"recovery","clean":true,"run":"r","reason":"test"}`))
	a.want(200, post("/v1/agents/a/restore", `{"checkpoint":"`+idC+`"}`).with("Idempotency-Key", "r1"))
	a.want(200, post("/v1/agents/a/restore", `{"checkpoint":"`+idC+`"}`).with("Idempotency-Key", "r1"))
	a.want(422, post("/v1/agents/a/restore", `{"checkpoint":"`+idA+`"}`).with("Idempotency-Key", "r1"))
	a.want(400, post("/v1/agents/a/restore", `{"checkpoint":"`+idA+`","clean":true}`))
	a.want(404, post("/v1/agents/nobody/restore", ``).of(""))
	a.want(409, post("/v1/agents/a/restore", `{"checkpoint":"`+idA+`","run":"r"}`))
}

func (a *api) changing() {
	a.want(200, patch("/v1/checkpoints/"+idA, `{"pinned":true,"labels":{"k":"v"}}`))
	a.want(400, patch("/v1/checkpoints/"+idA, `{}`))
	a.want(404, patch("/v1/checkpoints/"+idZ, `{"pinned":true}`))
	a.want(409, del("/v1/checkpoints/"+idA))
	a.want(200, patch("/v1/checkpoints/"+idA, `{"pinned":false}`))
	a.want(200, del("/v1/checkpoints/"+idA))
	a.want(404, del("/v1/checkpoints/"+idA))
}

func (a *api) agents() {
	a.want(200, get("/v1/agents?limit=1"))
	a.want(200, get("/v1/agents?owner=uid%3A0"))
	a.want(400, get("/v1/agents?before=x"))
	a.want(200, get("/v1/agents/a/policy"))
	a.want(404, get("/v1/agents/nobody/policy"))
	a.want(200, put("/v1/agents/a/policy", `{"routine_keep":5,"recovery_keep":"1h","ended_keep":"1d12h","max_bytes":1000000,"secrets":"off"}`))
	a.want(400, put("/v1/agents/a/policy", `{"recovery_keep":"0s"}`))
	a.want(400, put("/v1/agents/a/policy", `{"recovery_keep":5}`))
	a.want(400, put("/v1/agents/a/policy", `{"recovery_keep":"5"}`))
	a.want(200, get("/v1/agents/a/policy?layers=true"))
	a.want(200, get("/v1/runs?workflow=w&label=a%3Db&label=c%3Dd&goal=deploy*&since=2026-01-01T00%3A00%3A00Z&until=2099-01-01T00%3A00%3A00Z&severity=warn&sort=started&status=failed"))
	a.want(200, get("/v1/agents/a/runs?goal=x&sort=updated"))
	a.want(400, get("/v1/runs?since=yesterday"))
	a.want(400, get("/v1/runs?sort=odd"))
	a.want(200, get("/v1/policy"))
	a.want(200, put("/v1/policy", `{"routine_keep":7,"pre_operation_keep":"0s"}`))
	a.want(200, put("/v1/policy", `{}`))
	a.want(400, put("/v1/policy", `{"routine_keep":-7}`))
	a.want(200, post("/v1/prune", `{"dry_run":true}`))
	a.want(200, put("/v1/agents/a/policy", `{"routine_keep":1,"recovery_keep":"1s"}`))
	a.want(200, post("/v1/prune", `{"agent":"a"}`).with("Idempotency-Key", "p1"))
	a.want(200, post("/v1/prune", `{"agent":"a"}`).with("Idempotency-Key", "p1"))
	a.want(422, post("/v1/prune", `{"agent":"a","dry_run":true}`).with("Idempotency-Key", "p1"))
	a.want(404, post("/v1/prune", `{"agent":"nobody"}`))

	export := a.want(200, get("/v1/agents/a/export"))
	a.want(404, get("/v1/agents/nobody/export"))
	a.want(200, post("/v1/import?agent=copy", export).of("application/x-ndjson")) // with new ids
	a.want(200, post("/v1/import", export).of("application/x-ndjson"))            // all of them are already there
	a.want(400, post("/v1/import", export[:len(export)/2]).of("application/x-ndjson"))
	a.want(200, del("/v1/agents/copy"))
	a.want(404, del("/v1/agents/copy"))
}

const aRun = "/v1/agents/worker/runs"

func (a *api) runs() {
	a.want(201, post(aRun, `{"run":"r1","workflow":"w","pid":0,"heartbeat_timeout":"30s","progress_timeout":"1m","goal":"g","external_session":"s","labels":{"a":"b"}}`).
		with("Idempotency-Key", "k1"))
	a.want(201, post(aRun, ``).of(""))
	a.want(400, post(aRun, `{"pid":-1}`))
	a.want(400, post(aRun, `{"agent":"a"}`))
	a.want(422, post(aRun, `{"run":"r2"}`).with("Idempotency-Key", "k1"))
	a.want(200, get(aRun+"?limit=1"))
	a.want(200, get("/v1/runs?agent=worker&status=running"))
	a.want(200, get("/v1/runs"))
	a.want(400, get("/v1/runs?status=none"))
	a.want(200, get(aRun+"/r1"))
	a.want(404, get(aRun+"/none"))
	a.want(200, post(aRun+"/r1/heartbeat", `{"epoch":1,"progress":0.25}`))
	a.want(200, post(aRun+"/r1/heartbeat", ``).of(""))
	a.want(404, post(aRun+"/none/heartbeat", `{}`))

	a.want(201, post("/v1/agents/worker/checkpoints", `{"kind":"routine","run":"r1","state":{"n":1},"program":{"source":"a;b","executed":2}}`))
	a.steps()
	a.operations()
	a.events()
	a.want(200, get(aRun+"/r1/recorder"))
	a.want(200, get(aRun+"/r1/recorder?from=2026-01-01T00:00:00.000Z&to=2126-01-01T00:00:00.000Z&bins=10"))
	a.want(400, get(aRun+"/r1/recorder?bins=1000"))
	a.want(400, get(aRun+"/r1/recorder?from=2026-01-01T00:00:00.000Z&to=2025-01-01T00:00:00.000Z"))
	a.want(404, get(aRun+"/none/recorder"))
	a.want(200, get(aRun+"/r1/transcript"))
	a.want(200, get(aRun+"/r1/transcript?failed=true&text=10&limit=5&from=2026-01-01T00:00:00.000Z"))
	a.want(400, get(aRun+"/r1/transcript?at=a&before=b"))
	a.want(400, get(aRun+"/r1/transcript?limit=1000"))
	a.want(404, get(aRun+"/r1/transcript?at=none"))

	a.want(200, post(aRun+"/r1/resume", `{"dry_run":true}`))
	a.want(200, post(aRun+"/r1/resume", `{"pid":0,"force":true,"heartbeat_timeout":"1m","progress_timeout":"0s","reason":"test"}`).with("Idempotency-Key", "k2"))
	a.want(200, post(aRun+"/r1/resume", `{"pid":0,"force":true,"heartbeat_timeout":"1m","progress_timeout":"0s","reason":"test"}`).with("Idempotency-Key", "k2"))
	a.want(200, post("/v1/agents/fresh/runs/main/resume", ``).of(""))
	a.prompts()
	a.tokens()
	a.want(200, post(aRun+"/r1/resume", `{"force":true}`))
	a.want(409, post(aRun+"/r1/heartbeat", `{"epoch":1}`)) // fenced
	a.want(400, post(aRun+"/r1/end", `{"status":"running"}`))
	a.want(200, post(aRun+"/main/end", `{"status":"completed","result":[1],"state":{"done":true},"continuation_prompt":"p","error":"e"}`))
	a.want(409, post(aRun+"/main/steps", `{"key":"s","name":"n"}`)) // the run has ended
}

func (a *api) langgraph() {
	const path = "/v1/agents/langgraph/graph/"
	const framed = "application/vnd.ckptsidecar.graph"
	call := func(method, body string) request { return post(path+method, body) }
	frame := func(method, body string) request { return call(method, body).of(framed) }
	a.want(200, call("get", `{"thread":"t"}`)) // the thread does not exist yet
	a.want(200, call("delete_thread", `{"thread":"t"}`))
	put := `{"thread":"t","ns":"n","checkpoint":{"v":4,"id":"1","channel_versions":{"a":1}},"metadata":{"run_id":"r"},"values":[{"channel":"a","type":"json","length":3}]}`
	if got := a.want(200, frame("put", put+"\n"+`"x"`)); !strings.Contains(got, `"missing":[]`) {
		a.t.Error(got)
	}
	a.want(200, frame("put", `{"thread":"t","ns":"n","parent":"1","checkpoint":{"v":3,"id":"2","channel_versions":{"a":1}},"carry":["a"]}`+"\n"))
	if got := a.want(200, frame("put", `{"thread":"t","parent":"1","checkpoint":{"id":"2"},"carry":["a"]}`+"\n")); !strings.Contains(got, `"missing":["a"],"checkpoint":null`) {
		a.t.Error(got)
	}
	a.want(200, frame("put_writes", `{"thread":"t","ns":"n","checkpoint":"1","task":"k","path":"p","writes":[{"idx":0,"channel":"__pregel_tasks","type":"json","length":4},{"idx":-1,"channel":"b","type":"x","length":0}]}`+"\nnull"))
	for name, wrong := range map[string]request{
		"no line feed":   frame("put", put),
		"too few bytes":  frame("put", put+"\n12"),
		"too many bytes": frame("put", put+"\n1234"),
		"a wrong length": frame("put", strings.Replace(put, `"length":3`, `"length":-3`, 1)+"\n123"),
		"no thread":      call("get", `{}`),
		"no limit":       call("list", `{"limit":0}`),
		"unknown":        call("list", `{"threads":1}`),
		"no cursor":      call("list", `{"cursor":"x"}`),
		"no strategy":    call("prune", `{"threads":[]}`),
	} {
		if got := a.want(400, wrong); !strings.Contains(got, `"invalid"`) {
			a.t.Errorf("%s: %s", name, got)
		}
	}
	got := a.want(200, call("get", `{"thread":"t","ns":"n"}`))
	if want := `{"tuples":[{"thread":"t","ns":"n","id":"2","parent":"1","checkpoint":{"v":3,"id":"2","channel_versions":{"a":1}},"metadata":{},` +
		`"values":[{"channel":"a","version":1,"type":"json","length":3}],"writes":[],"sends":[{"type":"json","length":4}]}],"next":null}` + "\n" + `"x"null`; got != want {
		a.t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	a.want(200, call("list", `{"thread":"t","ns":null,"checkpoint":"","before":"3","filter":{"run_id":"r"},"limit":5}`))
	a.want(200, call("list", `{}`))
	if got := a.want(200, call("history", `{"thread":"t","ns":"n","channels":["a","b"]}`)); !strings.HasSuffix(got, "\n"+`"x"`) {
		a.t.Error(got)
	}
	a.want(200, call("copy_thread", `{"from":"t","to":"u"}`))
	a.want(200, call("delete_runs", `{"run_ids":["r"]}`))
	a.want(200, call("prune", `{"threads":["t"],"strategy":"keep_latest"}`))
	a.want(200, call("delete_thread", `{"thread":"u"}`))
}

func (a *api) drift() {
	const path = "/v1/agents/drifter/drift"
	a.want(404, get(path))
	a.want(201, post("/v1/agents/drifter/checkpoints", `{"kind":"routine","state":{"n":1}}`))
	a.want(200, get(path))
	finding := post(path+"/findings", `{"rule":"tired","severity":"warn","message":"m","advice":"rest","evidence":{"n":[1]},"epoch":1,"run":"main"}`).with("Idempotency-Key", "f1")
	a.want(201, finding)
	a.want(201, finding) // replayed
	body := a.want(201, post(path+"/findings", `{"rule":"lost","severity":"critical","message":"m","since_seq":0,"evidence":null}`))
	a.want(400, post(path+"/findings", `{"rule":"lost","severity":"none","message":"m"}`))
	a.want(400, post(path+"/findings", `{"rule":"lost","severity":"warn","message":"m","more":1}`))
	a.want(201, post("/v1/agents/drifter/checkpoints", `{"kind":"routine","state":1,"run":"gone"}`))
	a.want(200, post("/v1/agents/drifter/runs/gone/end", `{"status":"completed"}`))
	a.want(409, post(path+"/findings", `{"rule":"lost","severity":"warn","message":"m","run":"gone"}`))
	a.want(201, post("/v1/agents/drifter/checkpoints", `{"kind":"routine","state":{"n":2}}`)) // suspect and critical
	a.want(201, post("/v1/agents/drifter/runs/main/steps", `{"key":"s","name":"n","status":"succeeded"}`))
	a.want(200, post("/v1/agents/drifter/runs/main/heartbeat", `{}`))
	page := a.want(200, get(path+"?run=main&limit=1&all=true&timeline=true"))
	var first ckpt.DriftReport
	if err := json.Unmarshal([]byte(page), &first); err != nil || first.Next == "" || first.Verdict != ckpt.SeverityCritical || first.Recovery == "" || len(first.Timeline) != 4 {
		a.t.Fatalf("%v %s", err, page)
	}
	a.want(200, get(path+"?limit=1&before="+string(first.Next)))
	a.want(400, get(path+"?all=yes"))
	var posted ckpt.PostedFinding
	if err := json.Unmarshal([]byte(body), &posted); err != nil || posted.ID == "" {
		a.t.Fatalf("%v %s", err, body)
	}
	a.want(200, get("/v1/findings/"+posted.ID))
	a.want(404, get("/v1/findings/"+idZ))
	a.want(200, post("/v1/findings/"+posted.ID+"/dismiss", `{"reason":"checked"}`).with("Idempotency-Key", "d1"))
	a.want(200, post("/v1/findings/"+posted.ID+"/dismiss", `{"reason":"checked"}`).with("Idempotency-Key", "d1"))
	a.want(200, post("/v1/findings/"+posted.ID+"/dismiss", ``).of(""))
	a.want(422, post("/v1/findings/"+posted.ID+"/dismiss", `{}`).with("Idempotency-Key", "d1"))
	a.want(404, post("/v1/findings/"+idZ+"/dismiss", `{}`))
	a.want(400, post("/v1/findings/x/dismiss", `{}`))
	a.want(200, get("/v1/status"))
}

func (a *api) steps() {
	a.want(201, post(aRun+"/r1/steps", `{"key":"s1","name":"read","args":{"path":"a"},"epoch":1}`))
	a.want(200, post(aRun+"/r1/steps/s1/finish", `{"status":"succeeded","result":[1],"duration_ms":3,"input_tokens":4,"output_tokens":5,"cost_usd":0.5,"progress":0.5}`))
	a.want(201, post(aRun+"/r1/steps", `{"key":"s1","name":"read"}`)) // it has succeeded
	a.want(201, post(aRun+"/r1/steps", `{"key":"s2","name":"write","status":"failed","error":"no"}`))
	a.want(201, post(aRun+"/r1/steps", `{"key":"s3","name":"long","args":null}`)) // it stays open
	a.want(201, post(aRun+"/r1/steps", `{"gen_ai.tool.call.id":"s5","gen_ai.tool.name":"search","gen_ai.tool.call.arguments":{"q":1},"gen_ai.system":"x"}`))
	a.want(200, post(aRun+"/r1/steps/s5/finish", `{"error.type":"timeout","gen_ai.usage.input_tokens":"7","gen_ai.execute_tool.duration":0.5,"gen_ai.tool.name":"search"}`))
	told := a.want(200, get(aRun+"/r1/steps?status=failed"))
	for _, want := range []string{`"key":"s5"`, `"name":"search"`, `"args":{"q":1}`, `"error":"timeout"`, `"input_tokens":7`, `"duration_ms":500`} {
		if !strings.Contains(told, want) {
			a.t.Errorf("the step of telemetry is not told as %s: %s", want, told)
		}
	}
	a.want(400, post(aRun+"/r1/steps", `{"key":"s6","gen_ai.tool.name":"n","gen_ai.usage.input_tokens":"many"}`))
	a.want(400, post(aRun+"/r1/steps", `{"key":"s6","gen_ai.tool.name":"n","telemetry":1}`))
	a.want(400, post(aRun+"/r1/steps", `{"name":"s4"}`))
	a.want(404, post(aRun+"/r1/steps/none/finish", ``).of(""))
	a.want(200, get(aRun+"/r1/steps?limit=1"))
	a.want(200, get(aRun+"/r1/steps?status=succeeded"))
	a.want(400, get(aRun+"/r1/steps?status=none"))
}

func (a *api) operations() {
	a.want(201, post(aRun+"/r1/operations", `{"key":"o1","name":"push","state":{"before":1},"labels":{},"epoch":1}`))
	a.want(200, post(aRun+"/r1/operations/o1/fail", `{"error":"refused"}`)) // the answer has the state to go back to
	a.want(201, post(aRun+"/r1/operations", `{"key":"o1","name":"push"}`))
	a.want(200, post(aRun+"/r1/operations/o1/succeed", ``).of(""))
	a.want(201, post(aRun+"/r1/operations", `{"key":"o1","name":"push"}`)) // it has succeeded
	a.want(400, post(aRun+"/r1/operations/o1/fail", `{"status":"succeeded"}`))
	a.want(404, post(aRun+"/r1/operations/none/succeed", `{}`))
	a.want(201, post(aRun+"/r1/operations", `{"key":"o2","name":"open","args":{"n":1},"result_schema":{"type":"object"}}`))
	a.want(409, post(aRun+"/r1/operations", `{"key":"o2","name":"open"}`))
	a.want(409, post(aRun+"/r1/operations/o2/resolve", `{"choice":"it_did_not"}`)) // its code may still end it
	a.want(409, post(aRun+"/r1/end", `{"status":"completed"}`))
	a.want(201, post(aRun+"/r1/operations", `{"key":"o3","name":"idempotent","idempotent":true}`))
	a.want(200, post(aRun+"/r1/operations/o3/doubt", `{"error":"TimeoutError: late"}`))
	a.want(201, post(aRun+"/r1/operations", `{"key":"o3","name":"idempotent","idempotent":true}`))
	a.want(200, post(aRun+"/r1/operations/o3/succeed", `{"result":{"id":3}}`))
	a.want(201, post(aRun+"/r1/operations", `{"key":"o4","name":"checks","check":true}`))
	a.want(200, post(aRun+"/r1/operations/o4/doubt", `{}`))
	a.want(200, post(aRun+"/r1/operations/o4/resolve", `{"attempt":1,"choice":"it_did","result":4,"check":true}`))
	a.want(400, post(aRun+"/r1/operations/o2/resolve", `{}`))
	a.want(200, get(aRun+"/r1/operations?status=open"))
	a.want(200, get(aRun+"/r1/operations?limit=1"))
}

func (a *api) events() {
	a.want(201, post(aRun+"/r1/events?epoch=1", `[{"type":"note","payload":{"a":1}},{"type":"note"}]`))
	a.want(400, post(aRun+"/r1/events", `[]`))
	a.want(200, get(aRun+"/r1/events?after=0&limit=1"))
	a.want(200, get(aRun+"/r1/events"))
	a.want(400, get(aRun+"/r1/events?follow=true&limit=1"))
	a.want(404, get(aRun+"/none/events"))
	a.follow()
}

// follow follows for a moment. The stream ends when its client disconnects.
func (a *api) follow() {
	r := get(aRun + "/r1/events?follow=true")
	ctx, cancel := context.WithTimeout(a.t.Context(), 100*time.Millisecond)
	defer cancel()
	rec := httptest.NewRecorder()
	a.ask.ServeHTTP(rec, r.http().WithContext(ctx))
	if got := rec.Header().Get("Content-Type"); got != "application/x-ndjson" || rec.Code != 200 || strings.Count(rec.Body.String(), "\n") != 2 {
		a.t.Errorf("following answers %d %s %q", rec.Code, got, rec.Body)
	}
	if ok, errs := a.doc.answered(r.http(), rec.Result()); !ok {
		a.t.Error(explain(errs))
	}
}

// prompts answers a prompt: an operation lost its owner when r1 was resumed.
func (a *api) prompts() {
	page := a.want(200, get("/v1/prompts?open=true"))
	var open ckpt.PromptPage
	if err := json.Unmarshal([]byte(page), &open); err != nil || len(open.Prompts) == 0 {
		a.t.Fatalf("there is no prompt: %v %s", err, page)
	}
	a.want(200, get("/v1/prompts?limit=1"))
	answer := "/v1/prompts/" + open.Prompts[0].ID + "/answer"
	a.want(400, post(answer, `{"choice":"perhaps"}`))
	a.want(400, post(answer, `{"choice":"resume"}`))
	a.want(422, post(answer, `{"choice":"it_did","data":7}`)) // it does not match the schema
	a.want(200, post(answer, `{"choice":"it_did_not","reason":"looked"}`).with("Idempotency-Key", "k3"))
	a.want(200, post(answer, `{"choice":"it_did_not","reason":"looked"}`).with("Idempotency-Key", "k3"))
	a.want(409, post(answer, `{"choice":"repeat"}`))
	a.want(404, post("/v1/prompts/"+idZ+"/answer", `{"choice":"resume"}`))
	a.want(400, post("/v1/prompts/"+open.Prompts[0].ID+"/answer", `{}`))
	a.questions()
	a.want(200, post(aRun+"/r1/operations/o2/resolve", `{"choice":"it_did_not","reason":"looked"}`)) // the same act again
	a.want(409, post(aRun+"/r1/operations/o2/resolve", `{"choice":"it_did","result":{}}`))
}

// files stores a content and a tree, and makes a save that has them.
func (a *api) files() {
	const sum = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" // the hash of foo
	const none = "0000000000000000000000000000000000000000000000000000000000000000"
	const contents, agent = "application/vnd.ckptsidecar.contents", "/v1/agents/filer"
	a.want(200, post(agent+"/contents", sum+" 3 -\nfoo"+sum+" 3 "+none+"\nfoo").of(contents))
	for _, wrong := range []string{"foo", sum + " 3 -\nfo", sum + " 3 -\nbar", sum + " -1 -\n", sum + " 03 -\nfoo", sum + "  3 -\nfoo", none[1:] + " 0 -\n", strings.Repeat("x", 70000)} {
		a.want(400, post(agent+"/contents", wrong).of(contents))
	}
	a.want(413, post(agent+"/contents", sum+" 4194305 -\n").of(contents))
	a.want(200, post(agent+"/contents/missing", `{"sha256":["`+sum+`","`+none+`"]}`))
	a.want(400, post(agent+"/contents/missing", `{"sha256":["x"]}`))
	a.want(200, get(agent+"/contents/"+sum))
	a.want(404, get(agent+"/contents/"+none))
	entry := `{"path":"a/b","mode":"0644","size":3,"sha256":"` + sum + `"}`
	var planted ckpt.TreeStored
	text := a.want(200, post(agent+"/trees", `{"root":"/r","captured_at":null,"complete":false,"left_out":[{"path":".env","why":"secret_name"}],"set":[`+entry+
		`,{"path":"l","mode":"link","size":1,"sha256":"","target":"a"}]}`))
	if err := json.Unmarshal([]byte(text), &planted); err != nil {
		a.t.Fatal(err)
	}
	var changed ckpt.TreeStored
	text = a.want(200, post(agent+"/trees", `{"base":"`+planted.ID+`","root":"/r","captured_at":null,"complete":true,"removed":["l"]}`))
	if err := json.Unmarshal([]byte(text), &changed); err != nil {
		a.t.Fatal(err)
	}
	a.want(409, post(agent+"/trees", `{"base":"`+none+`","root":"/r","captured_at":null,"complete":true}`))
	a.want(409, post(agent+"/trees", `{"root":"/r","captured_at":null,"complete":true,"set":[`+strings.ReplaceAll(entry, sum, none)+`]}`))
	a.want(400, post(agent+"/trees", `{"root":"/r","captured_at":null,"complete":true,"set":[`+strings.ReplaceAll(entry, "a/b", "../b")+`]}`))
	const one, two = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1af1", "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1af2"
	a.want(201, put(agent+"/checkpoints/"+one+"?kind=routine", `1`).with("Ckpt-Tree", planted.ID))
	a.want(409, put(agent+"/checkpoints/"+two+"?kind=routine", `2`).with("Ckpt-Tree", none))
	a.want(201, put(agent+"/checkpoints/"+two+"?kind=routine", `2`))
	a.want(404, get("/v1/checkpoints/"+two+"/files"))
	a.want(200, post("/v1/checkpoints/"+two+"/tree", `{"trees":["`+changed.ID+`"]}`))
	a.want(200, post("/v1/checkpoints/"+two+"/tree", `{"trees":["`+changed.ID+`"],"run":"main","epoch":1}`))
	a.want(409, post("/v1/checkpoints/"+two+"/tree", `{"trees":["`+planted.ID+`"]}`))
	a.want(200, get("/v1/checkpoints/"+two))
	a.want(200, get(agent+"/checkpoints"))
	a.want(200, get("/v1/checkpoints/"+one+"/files"))
	a.want(200, get("/v1/checkpoints/"+one+"/files?limit=1&after=a&tree="+planted.ID))
	a.want(404, get("/v1/checkpoints/"+one+"/files?tree="+none))
	a.want(200, get("/v1/checkpoints/"+one+"/files/"+two))
	a.want(404, get("/v1/checkpoints/"+one+"/files/"+two+"?root=/other"))
}

// tokens registers a token, and revokes it.
func (a *api) tokens() {
	const one, body = "/v1/tokens/00000000000000a1", `{"sha256":"0000000000000000000000000000000000000000000000000000000000000000","note":"n"}`
	put := post(one, body)
	put.method = "PUT"
	a.want(201, put)
	a.want(200, put)
	a.want(200, get("/v1/tokens?limit=1"))
	gone := get(one)
	gone.method = "DELETE"
	a.want(200, gone)
	gone.target = "/v1/tokens/00000000000000ff"
	a.want(404, gone)
	put.body = `{"sha256":"0"}`
	a.want(400, put)
	put.body = `{"sha256":"1111111111111111111111111111111111111111111111111111111111111111"}`
	a.want(409, put)
}

// questions asks a person a question, and answers it.
func (a *api) questions() {
	const path, question = aRun + "/r2/prompts", `{"key":"q1","question":"Deploy?","choices":["yes","no"],"schema":{"type":"object","required":["env"]},"expires":"1h"}`
	var p ckpt.Prompt
	if err := json.Unmarshal([]byte(a.want(201, post(path, question))), &p); err != nil {
		a.t.Fatal(err)
	}
	a.want(201, post(path, question))
	a.want(422, post(path, `{"key":"q1","question":"Another?"}`))
	a.want(400, post(path, `{"question":" "}`))
	a.want(400, post(path, `{"question":"?","schema":{"type":7}}`))
	one := "/v1/prompts/" + p.ID
	a.want(200, get(one))
	a.want(200, get(one+"?wait=1ms"))
	a.want(400, get(one+"?wait=1h"))
	a.want(404, get("/v1/prompts/"+idZ))
	a.want(400, post(one+"/answer", `{"choice":"perhaps","data":{"env":"prod"}}`))
	a.want(422, post(one+"/answer", `{"choice":"yes","data":{}}`))
	a.want(200, post(one+"/answer", `{"choice":"yes","data":{"env":"prod"}}`))
	a.want(200, post(one+"/answer", `{"data":{ "env": "prod" },"choice":"yes"}`))
	a.want(409, post(one+"/answer", `{"choice":"no","data":{"env":"prod"}}`))
	a.want(200, get(one+"?wait=10m"))
}

func (a *api) daemon() {
	a.want(200, get("/v1/agents?states=true"))
	a.want(200, get("/v1/settings"))
	a.as(ckpt.Caller{Owner: "uid:7"}).want(403, get("/v1/settings"))
	a.as(ckpt.Caller{Owner: "uid:7", Admin: true}).want(404, get("/v1/settings"))
	a.want(200, get("/v1/fleet")) // this host has no fleet
	a.want(409, get("/v1/fleet/hosts"))
	a.want(409, get("/v1/fleet/runs?host=h&agent=a&status=running&limit=2&before=2026-11-24T00%3A00%3A00.000Z%2Fu"))
	a.want(400, get("/v1/fleet/runs?status=bad"))
	a.want(400, get("/v1/fleet/runs?before=none"))
	a.as(ckpt.Caller{Owner: "uid:7"}).want(403, get("/v1/fleet"))
	a.as(ckpt.Caller{Owner: "uid:7"}).want(403, get("/v1/fleet/hosts"))
	a.as(ckpt.Caller{Owner: "uid:7"}).want(409, get("/v1/fleet/runs"))
	a.want(409, post("/v1/agents/tagged/runs/main/release", ""))
	a.want(409, post("/v1/fleet/drain", `{"undo":true}`))
	a.want(409, post("/v1/agents/tagged/runs/main/resume", `{"standby":true}`))
	a.want(200, put("/v1/agents/tagged/policy?reason=first%20of%20all", `{"routine_keep":1}`))
	tag, err := a.store.PolicyTag(a.t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0"}}, "tagged")
	if err != nil {
		a.t.Fatal(err)
	}
	a.want(200, get("/v1/agents/tagged/policy"))
	a.want(200, put("/v1/agents/tagged/policy", `{"routine_keep":2}`).with("If-Match", `"`+tag+`"`))
	a.want(409, put("/v1/agents/tagged/policy", `{"routine_keep":3}`).with("If-Match", `"`+tag+`"`))
	a.want(200, put("/v1/agents/tagged/policy", `{"routine_keep":3}`).with("If-Match", `*`))
	a.want(200, post("/v1/prune?reason=r", `{"dry_run":true}`))
	a.want(400, get("/v1/changes"))
	a.want(400, get("/v1/changes?follow=false"))
	a.want(200, get("/v1/retention/forecast?routine_keep=1&recovery_keep=1h&pre_operation_keep=0s&ended_keep=7d&max_bytes=1&limit=5"))
	a.want(200, get("/v1/agents/a/retention/forecast"))
	a.want(404, get("/v1/agents/nobody/retention/forecast"))
	a.want(400, get("/v1/retention/forecast?recovery_keep=soon"))
	a.want(400, get("/v1/retention/forecast?recovery_keep=-1h"))
	a.want(200, get("/v1/audit?newest=true&limit=2&agent=a&run=main&action=decisions&who=uid:0&outcome=refused&since=2026-01-01T00:00:00Z"))
	a.want(200, get("/v1/audit?before=3"))
	a.want(400, get("/v1/audit?before=3&newest=false"))
	a.want(400, get("/v1/audit?after=3&newest=true"))
	a.want(200, post("/v1/verify", `{"chain":true}`))
	a.want(400, post("/v1/verify", `{}`))
	a.as(ckpt.Caller{Owner: "uid:7"}).want(403, post("/v1/verify", `{"chain":true}`))
	a.want(200, get("/v1/findings?closed=true&severity=warn&rule=loop&since=2026-01-01T00:00:00Z&agent=a&run=main&limit=1"))
	a.want(400, get("/v1/findings?run=main"))
	a.want(400, get("/v1/findings?severity=bad"))
	a.notModified("/v1/overview?span=1h&limit=10")
	a.want(200, get("/v1/overview").with("If-None-Match", `*`))
	a.want(400, get("/v1/overview?span=1s"))
	a.want(400, get("/v1/overview?span=soon"))
	a.want(400, get("/v1/overview").with("If-None-Match", `bare`))
	a.want(202, post("/v1/notify/test", ``))
	a.want(200, get("/v1/events?limit=2"))
	a.want(400, get("/v1/events?after=77"))
	a.want(400, get("/v1/events?follow=true&limit=2"))
	a.want(200, get("/v1/audit?limit=1"))
	a.want(200, get("/v1/audit?agent=a&action=save&after=1"))
	a.want(400, get("/v1/audit?after=-1"))
	a.want(400, post("/v1/audit/archive", `{}`))
	a.want(400, post("/v1/audit/archive", `{"before":"2999-01-01T00:00:00.000Z"}`))
	a.want(200, post("/v1/audit/archive", `{"before":"2001-01-01T00:00:00.000Z"}`))
	a.want(200, get("/v1/status"))
	a.want(200, get("/v1/version"))
	a.want(200, get("/healthz"))
	a.want(200, get("/readyz"))
	a.want(200, get("/metrics"))
	a.as(ckpt.Caller{Owner: "uid:1000"}).want(404, get("/v1/checkpoints/"+idB)) // it belongs to another owner
	a.as(ckpt.Caller{Owner: "uid:1000"}).want(403, get("/metrics"))
	a.as(ckpt.Caller{Owner: "uid:0", Admin: true}).want(404, get("/metrics")) // this server has no metrics
}

// refusals sends to each route what every route refuses.
func (a *api) refusals() {
	stranger := a.as(ckpt.Caller{Owner: "uid:1000"})
	for _, r := range server.Routes() {
		ask := asked(r.Method, r.Path)
		a.want(403, ask.with("Origin", "http://evil"))
		unknown := ask
		unknown.target += "&none=1"
		a.want(400, unknown)
		foreign := ask
		foreign.target += "&owner=uid%3A7"
		stranger.want(403, foreign)
	}
}

// asked returns a request for a route that reaches the store.
func asked(method, path string) request {
	r := request{method: method, contentType: ckpt.ContentTypeJSON, body: "{}"}
	r.target = strings.NewReplacer("{agent}", "a", "{id}", idB, "{run}", "r", "{key}", "k", "{a}", idB, "{b}", idB, "{n}", "1", "{token}", "00000000000000a1", "{sha256}", strings.Repeat("0", 64)).Replace(path) + "?"
	switch {
	case method == "PUT" && strings.HasSuffix(path, "{id}"):
		r.target += "kind=routine"
	case method == "POST" && strings.HasSuffix(path, "/checkpoints"):
		r.body = `{"kind":"routine","state":{}}`
	case method == "POST" && strings.HasSuffix(path, "/events"):
		r.body = `[{"type":"t"}]`
	case strings.HasSuffix(path, "/put"), strings.HasSuffix(path, "/put_writes"):
		r.body, r.contentType = "{}\n", "application/vnd.ckptsidecar.graph"
	case strings.HasSuffix(path, "/contents"):
		r.body, r.contentType = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 -\n", "application/vnd.ckptsidecar.contents"
	case strings.HasSuffix(path, "/graph/get"):
		r.body = `{"thread":"t"}`
	case method == "PATCH":
		r.body = `{"pinned":true}`
	case method == "GET" || method == "DELETE":
		r.body, r.contentType = "", ""
	}
	return r
}
