package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

const saves = "/v1/agents/a/checkpoints"

// TestStatesAreKeptByteForByte: each state is returned byte for byte, in every
// way to read it.
func TestStatesAreKeptByteForByte(t *testing.T) {
	w := newWorld(t)
	for i, state := range []string{
		`{"b":1,"a":2}`, `{ "x" :  1.50e+10 , "y":[ ] }`, "\n\t[1, 2]\r\n", `"\u003c\ud800 & <é>"`, `-0.0`, `null`, ` 12345678901234567890123 `, `{"\u0061":"a"}`, `""`,
	} {
		for _, form := range []string{"envelope", "raw", "client"} {
			agent := fmt.Sprint("agent", i, form)
			id := w.saveAs(form, agent, state)
			w.wantState(agent, id, state, form != "envelope")
		}
	}
}

func (w *world) saveAs(form, agent, state string) string {
	w.t.Helper()
	target := "/v1/agents/" + agent + "/checkpoints"
	var r reply
	switch form {
	case "client":
		return w.save(agent, state).ID
	case "raw":
		id, err := newTestID()
		expect.OK(w.t, err)
		r = w.send("PUT", target+"/"+id+"?kind=routine", state, "Content-Type: application/json; charset=utf-8")
	default:
		r = w.send("POST", target, `{"kind":"routine","state":`+state+`}`, "Content-Type: application/json")
	}
	expect.Equal(w.t, "status of "+form+" "+r.body, r.status, 201)
	var ck ckpt.Checkpoint
	expect.OK(w.t, json.Unmarshal([]byte(r.body), &ck))
	return ck.ID
}

// wantState reads the state in every way. A state from an envelope comes
// without the surrounding white space, which belongs to the envelope.
func (w *world) wantState(agent, id, state string, exact bool) {
	w.t.Helper()
	if !exact {
		state = strings.TrimSpace(state)
	}
	ctx := w.t.Context()
	raw := w.send("GET", "/v1/checkpoints/"+id+"/state", "")
	expect.Equal(w.t, "…/state", raw.body, state)
	for _, r := range []reply{
		w.send("GET", "/v1/checkpoints/"+id, ""),
		w.send("GET", "/v1/agents/"+agent+"/checkpoints/latest", ""),
		w.send("POST", "/v1/agents/"+agent+"/restore", `{"reason":"test"}`),
	} {
		expect.OK(w.t, jsontext.Check([]byte(r.body)))
		if !strings.HasSuffix(r.body, `,"state":`+state+"}\n") {
			w.t.Errorf("the state %q is not in %s", state, r.body)
		}
	}
	one, err := w.client.Checkpoint(ctx, id, true)
	expect.OK(w.t, err)
	latest, err := w.client.Latest(ctx, ckpt.CheckpointFilter{Agent: agent}, true)
	expect.OK(w.t, err)
	restored, _, err := w.client.Restore(ctx, ckpt.RestoreRequest{Agent: agent, Reason: "test"})
	expect.OK(w.t, err)
	got, err := w.client.State(ctx, id)
	expect.OK(w.t, err)
	for _, s := range [][]byte{one.State, latest.State, restored.State, got} {
		expect.Equal(w.t, "the state", string(s), state)
	}
}

func TestBytesThatAreNotJSON(t *testing.T) {
	w := newWorld(t)
	for _, state := range []string{"", "\x00\xff\xfe", strings.Repeat("\n", 5000), "{not json"} {
		saved, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "b", Kind: ckpt.KindRoutine, ContentType: "image/x-odd; q=1", State: []byte(state)})
		expect.OK(t, err)
		r := w.send("GET", "/v1/checkpoints/"+saved.ID+"/state", "")
		expect.Equal(t, "bytes", r.body, state)
		expect.Equal(t, "content type", r.header.Get("Content-Type"), "image/x-odd; q=1")
		expect.Equal(t, "hash", r.header.Get("Ckpt-Sha256"), saved.SHA256)
		one := w.send("GET", "/v1/checkpoints/"+saved.ID, "")
		var shape struct {
			State *json.RawMessage `json:"state"`
			Bytes []byte           `json:"state_base64"`
		}
		expect.OK(t, json.Unmarshal([]byte(one.body), &shape))
		if shape.State != nil || string(shape.Bytes) != state {
			t.Errorf("%q came as %s", state, one.body)
		}
		ck, err := w.client.Checkpoint(t.Context(), saved.ID, true)
		expect.OK(t, err)
		expect.Equal(t, "the client's bytes", string(ck.State), state)
		if ck.State == nil {
			t.Error("an empty state that was asked for is nil")
		}
	}
	without, err := w.client.Checkpoint(t.Context(), w.save("b", `1`).ID, false)
	expect.OK(t, err)
	if without.State != nil {
		t.Error("a state that was not asked for came")
	}
	none := w.send("POST", saves+"?kind=routine", "raw")
	expect.Equal(t, "status", none.status, 201)
	if !strings.Contains(none.body, `"content_type":"application/octet-stream"`) {
		t.Error(none.body)
	}
}

func TestEverythingOfASaveArrives(t *testing.T) {
	var got *ckpt.SaveRequest
	w := newWorld(t)
	w.store.onSave = func(_ context.Context, r *ckpt.SaveRequest) error { got = r; return errSeen }
	epoch := int64(3)
	want := ckpt.SaveRequest{
		ID: id1, Agent: "a", Run: "r:1@x", Kind: ckpt.KindPreOperation, Epoch: &epoch, Parent: id2, ForkFrom: id2, Step: "tool/ü 1",
		Labels: ckpt.Labels{"team": "a=b&c", "x/y": "é;"}, Metadata: json.RawMessage("{\"n\":1.50,\n\t\"s\":\"é\U0001F600\x7f<\"}"),
		Program: &ckpt.Program{Source: "print('é')\n\x00", Executed: 5}, ContentType: "application/json", State: []byte(`{"x": 1}`),
	}
	_, err := w.client.Save(t.Context(), &want)
	expect.Code(t, err, errSeen.Code)
	sameRequest(t, got, &want)
	expect.Equal(t, "id", got.ID, id1)

	body, err := json.Marshal(envelope{want.Kind, want.State, want.Run, want.Epoch, want.Parent, want.ForkFrom, want.Step, want.Labels, want.Metadata, want.Program})
	expect.OK(t, err)
	r := w.send("POST", saves, string(body), "Content-Type: application/json", "Idempotency-Key: k 1")
	expect.Equal(t, "code", r.problem(t).Code, errSeen.Code)
	sameRequest(t, got, &want)
	expect.Equal(t, "key", got.IdempotencyKey, "k 1")
}

// errSeen refuses a save if a test only wants to see the request.
var errSeen = ckpt.Errorf(ckpt.CodeSchemaMismatch, "a test has seen the request")

func sameRequest(t *testing.T, got, want *ckpt.SaveRequest) {
	t.Helper()
	a, b := *got, *want
	for _, r := range []*ckpt.SaveRequest{&a, &b} {
		r.ID, r.IdempotencyKey, r.Lent = "", "", false
		var m any
		expect.OK(t, json.Unmarshal(r.Metadata, &m))
		r.Metadata, _ = json.Marshal(m)
		var s any
		expect.OK(t, json.Unmarshal(r.State, &s))
		r.State, _ = json.Marshal(s)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	expect.Equal(t, "the request", string(x), string(y))
}

func TestReplays(t *testing.T) {
	w := newWorld(t)
	target := saves + "/" + id1 + "?kind=routine"
	first := w.send("PUT", target, "one")
	again := w.send("PUT", target, "one")
	other := w.send("PUT", target, "two")
	expect.Equal(t, "first", first.status, 201)
	expect.Equal(t, "first mark", first.header.Get("Idempotent-Replayed"), "")
	expect.Equal(t, "again", again.status, 201)
	expect.Equal(t, "again mark", again.header.Get("Idempotent-Replayed"), "true")
	expect.Equal(t, "reply", again.body, first.body)
	expect.Equal(t, "other", other.problem(t).Code, ckpt.CodeIdempotencyMismatch)
	expect.Equal(t, "other status", other.status, 422)
	saved, err := w.client.Save(t.Context(), &ckpt.SaveRequest{ID: id1, Agent: "a", Kind: ckpt.KindRoutine, ContentType: "application/octet-stream", State: []byte("one")})
	expect.OK(t, err)
	expect.Equal(t, "the client sees it", saved.Replayed, true)
}

func TestPrunedComesInTheSameAnswer(t *testing.T) {
	w := newWorld(t)
	first := w.save("a", "1")
	expect.Equal(t, "pruned", len(first.Pruned), 0)
	w.save("a", "2")
	w.save("a", "3")
	fourth := w.save("a", "4")
	expect.Equal(t, "pruned", strings.Join(fourth.Pruned, " "), first.ID)
	r := w.send("POST", saves, `{"kind":"recovery","state":1}`, "Content-Type: application/json")
	if !strings.Contains(r.body, `"pruned":[]`) {
		t.Error(r.body)
	}
}

func TestPatchSaves(t *testing.T) {
	w := newWorld(t)
	base := w.save("a", `{"n":1.50,"list":[1]}`)
	patch := func(form, query, body string) reply {
		return w.send("POST", saves+"?kind=recovery&"+query, body, "Content-Type: "+form)
	}
	r := patch(ipc.TypeMergePatch, "base="+base.ID, `{"new":{"x":null,"y":1}}`)
	expect.Equal(t, "status "+r.body, r.status, 201)
	var ck ckpt.Checkpoint
	expect.OK(t, json.Unmarshal([]byte(r.body), &ck))
	expect.Equal(t, "parent", ck.Parent, ckpt.Ref(base.ID))
	expect.Equal(t, "content type", ck.ContentType, "application/json")
	w.wantStateOf(ck.ID, `{"n":1.50,"list":[1],"new":{"y":1}}`)

	r = patch(ipc.TypeJSONPatch+"; charset=utf-8", "base="+base.ID, `[{"op":"add","path":"/list/-","value":2}]`)
	expect.OK(t, json.Unmarshal([]byte(r.body), &ck))
	w.wantStateOf(ck.ID, `{"n":1.50,"list":[1,2]}`)

	binary, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRecovery, ContentType: "x/y", State: []byte("{}")})
	expect.OK(t, err)
	elsewhere := w.save("b", `{}`)
	for _, c := range []struct {
		form, query, body string
		code              ckpt.Code
	}{
		{ipc.TypeMergePatch, "", `{}`, ckpt.CodeInvalid},
		{ipc.TypeMergePatch, "base=x", `{}`, ckpt.CodeInvalid},
		{ipc.TypeMergePatch, "base=" + id1, `{}`, ckpt.CodeBaseMissing},
		{ipc.TypeMergePatch, "base=" + elsewhere.ID, `{}`, ckpt.CodeBaseMissing},
		{ipc.TypeMergePatch, "base=" + binary.ID, `{}`, ckpt.CodeConflict},
		{ipc.TypeMergePatch, "base=" + base.ID, `{"a":1,"a":2}`, ckpt.CodeInvalid},
		{ipc.TypeMergePatch, "base=" + base.ID, ``, ckpt.CodeInvalid},
		{ipc.TypeJSONPatch, "base=" + base.ID, `{}`, ckpt.CodeInvalid},
		{ipc.TypeJSONPatch, "base=" + base.ID, `[{"op":"remove","path":"/x"}]`, ckpt.CodeConflict},
		{ipc.TypeMergePatch, "base=" + base.ID, strings.Repeat("[", 999) + strings.Repeat("]", 999), ""},
		{ipc.TypeMergePatch, "base=" + base.ID, `{"n":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}", ckpt.CodeInvalid},
		{ipc.TypeDelta, "base=" + base.ID, `[]`, ckpt.CodeInvalid}, // without the hash of the base
		{ipc.TypeMergePatch, "content_type=x&base=" + base.ID, `{}`, ckpt.CodeInvalid},
		{"text/plain", "content_type=x", `x`, ckpt.CodeInvalid},
		{"text/plain", "base=" + base.ID, `x`, ckpt.CodeInvalid},
	} {
		r := patch(c.form, c.query, c.body)
		if c.code == "" {
			expect.Equal(t, "status", r.status, 201)
			continue
		}
		expect.Equal(t, c.form+" "+c.query+" "+shown(c.body), r.problem(t).Code, c.code)
	}
	again := w.send("POST", saves+"?kind=recovery&base="+id1, `{}`, "Content-Type: "+ipc.TypeMergePatch, "Idempotency-Key: k")
	if p := again.problem(t); p.Code != ckpt.CodeBaseMissing || !strings.Contains(p.Detail, "the newest checkpoint") {
		t.Errorf("a patch with a key whose base is gone is answered with %+v", p)
	}
	put := w.send("PUT", saves+"/"+id2+"?kind=routine", `{"any":"thing"}`, "Content-Type: "+ipc.TypeMergePatch)
	expect.Equal(t, "a PUT of a patch is a state "+put.body, put.status, 201)
	w.wantStateOf(id2, `{"any":"thing"}`)
	put = w.send("PUT", saves+"/"+id1+"?kind=routine&base="+id2, "[]\n", "Content-Type: "+ipc.TypeDelta, "Ckpt-Base-Sha256: "+strings.Repeat("0", 64))
	expect.Equal(t, "delta", put.problem(t).Code, ckpt.CodeBaseMissing)
}

func (w *world) wantStateOf(id, state string) {
	w.t.Helper()
	got, err := w.client.State(w.t.Context(), id)
	expect.OK(w.t, err)
	expect.Equal(w.t, "the state of "+id, string(got), state)
}

// TestHostileSaves is FAULTS F28: every bad input gets a 4xx that says where
// the mistake is.
func TestHostileSaves(t *testing.T) {
	w := newWorld(t)
	jsonType, envelope := "Content-Type: application/json", `{"kind":"routine","state":1}`
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for _, c := range []struct {
		target, body, header string
		status               int
		part                 string
	}{
		{saves, `{"kind":"routine","state":1,"state":2}`, jsonType, 400, "duplicate key"},
		{saves, `{"kind":"routine","kind":"recovery","state":2}`, jsonType, 400, "duplicate key"},
		{saves, `{"kind":"routine","state":{"a":1,"\u0061":2}}`, jsonType, 400, "duplicate key"},
		{saves, `{"Kind":"routine","state":1}`, jsonType, 400, "Kind"},
		{saves, `{"kind":"routine","STATE":1}`, jsonType, 400, "STATE"},
		{saves, `{"kind":"routine","state":1,"colour":"red"}`, jsonType, 400, "colour"},
		{saves, `{"kind":"routine","state":1} x`, jsonType, 400, "after the value"},
		{saves, `{"kind":"routine","state":1}{}`, jsonType, 400, "after the value"},
		{saves, `{"kind":"routine"}`, jsonType, 400, "state is missing"},
		{saves, `{"state":1}`, jsonType, 400, "kind is missing"},
		{saves, `{"kind":null,"state":1}`, jsonType, 400, "kind is missing"},
		{saves, `{"kind":"hourly","state":1}`, jsonType, 400, "hourly"},
		{saves, `{"kind":7,"state":1}`, jsonType, 400, "/kind"},
		{saves, `{"kind":"routine","state":1,"epoch":"1"}`, jsonType, 400, "/epoch"},
		{saves, `{"kind":"routine","state":1,"epoch":1.5}`, jsonType, 400, "/epoch"},
		{saves, `{"kind":"routine","state":1,"epoch":99999999999999999999}`, jsonType, 400, "/epoch"},
		{saves, `{"kind":"routine","state":1,"labels":["a"]}`, jsonType, 400, "/labels"},
		{saves, `{"kind":"routine","state":1,"labels":{"a":1}}`, jsonType, 400, "/labels/a"},
		{saves, `{"kind":"routine","state":1,"labels":{"a b":"1"}}`, jsonType, 400, "label"},
		{saves, `{"kind":"routine","state":1,"metadata":[1]}`, jsonType, 400, "object"},
		{saves, `{"kind":"routine","state":1,"parent":"x"}`, jsonType, 400, "not an id"},
		{saves, `{"kind":"routine","state":1,"parent":"01890a5d-ac96-474b-bcce-b302099a8057"}`, jsonType, 400, "version 7"},
		{saves, `{"kind":"routine","state":1,"step":"\u0007"}`, jsonType, 400, "control"},
		{saves, `{"kind":"routine","state":1,"run":"../../etc"}`, jsonType, 400, "run name"},
		{saves, `{"kind":"routine","state":1,"program":{"source":"é","executed":1}}`, jsonType, 400, "middle"},
		{saves, `{"kind":"routine","state":1,"program":{"source":"é","executed":-1}}`, jsonType, 400, "executed"},
		{saves, "{\"kind\":\"routine\",\"state\":\"\xff\"}", jsonType, 400, "UTF-8"},
		{saves, "\xef\xbb\xbf{}", jsonType, 400, "byte order mark"},
		{saves, `{"kind":"routine","state":NaN}`, jsonType, 400, "NaN"},
		{saves, `{"kind":"routine","state":01}`, jsonType, 400, "JSON"},
		{saves, `{"kind":"routine","state":` + deep + `}`, jsonType, 400, "nested"},
		{saves, deep, jsonType, 400, "nested"},
		{saves, ``, jsonType, 400, "unexpected end"},
		{saves, `[]`, jsonType, 400, ""},
		{saves, `null`, jsonType, 400, "missing"},
		{saves, `"x"`, jsonType, 400, ""},
		{saves + "?kind=routine", `{"state":1}`, jsonType, 400, "kind is not allowed here"},
		{saves + "?base=" + id1, `{}`, jsonType, 400, "base is not allowed here"},
		{saves, envelope, jsonType + "\r\nCkpt-Metadata: {\"a\":1}", 400, "Ckpt-Metadata is not allowed here: put it into the JSON body"},
		{saves, envelope, jsonType + "\r\nCkpt-Program: {\"source\":\"x\",\"executed\":1}", 400, "Ckpt-Program is not allowed here: put it into the JSON body"},
		{saves, envelope, jsonType + "\r\nCkpt-Crc32c: 00000000", 400, "Ckpt-Crc32c is not allowed here: it belongs to a raw state or a change of one"},
		{saves, envelope, jsonType + "\r\nCkpt-Base-Sha256: " + strings.Repeat("0", 64), 400, "Ckpt-Base-Sha256 is not allowed here: it belongs to changes"},
		{saves + "?kind=routine&base=" + id1, `{}`, "Content-Type: " + ipc.TypeMergePatch + "\r\nCkpt-Crc32c: 00000000", 400, "Ckpt-Crc32c is not allowed here"},
		{saves + "?kind=routine&base=" + id1, `{}`, "Content-Type: " + ipc.TypeMergePatch + "\r\nCkpt-Base-Sha256: x", 400, "Ckpt-Base-Sha256 is not allowed here"},
		{saves + "?kind=routine", `x`, "Ckpt-Base-Sha256: " + strings.Repeat("0", 64), 400, "Ckpt-Base-Sha256 is not allowed here"},
		{saves, `{"kind":"routine","state":1}`, "Content-Type: application/x-www-form-urlencoded", 400, "Content-Type: application/json"},
		{saves + "?kind=routine", `{bad`, "Content-Type: application/vnd.x+json", 400, "not JSON"},
		{saves + "?kind=routine&kind=routine", `x`, "", 400, "kind was given twice"},
		{saves + "?kind=routine&colour=red", `x`, "", 400, "colour"},
		{saves + "?kind=routine&epoch=-1", `x`, "", 400, "epoch"},
		{saves + "?kind=routine&label=a", `x`, "", 400, "label"},
		{saves + "?kind=routine", `x`, "Ckpt-Metadata: [1]", 400, "object"},
		{saves + "?kind=routine", `x`, "Ckpt-Metadata: {\"a\":1,\"a\":2}", 400, "duplicate"},
		{saves + "?kind=routine", `x`, "Ckpt-Metadata: {}\r\nCkpt-Metadata: {}", 400, "twice"},
		{saves + "?kind=routine", `x`, "Ckpt-Metadata:", 400, "empty"},
		{saves + "?kind=routine", `x`, "Ckpt-Spooled: yesterday", 400, "Ckpt-Spooled"},
		{saves + "?kind=routine", `x`, "Ckpt-Spooled: 2026-03-01T12:00:00Z\r\nCkpt-Spooled: 2026-03-01T12:00:00Z", 400, "twice"},
		{saves + "?kind=routine", `x`, "Ckpt-Program: {\"source\":\"x\",\"done\":1}", 400, "done"},
		{saves + "?kind=routine", `x`, "Content-Encoding: gzip", 400, "Content-Encoding"},
		{saves + "?kind=routine", `x`, "Content-Type: \xff\xff", 400, "ASCII"},
		{saves + "?kind=routine", `x`, "Idempotency-Key:", 400, "empty"},
		{saves + "?kind=routine", `x`, "Idempotency-Key: a\r\nIdempotency-Key: b", 400, "twice"},
		{saves + "?kind=routine", `x`, "Idempotency-Key: " + strings.Repeat("k", 513), 400, "513"},
		{"/v1/agents/.hidden/checkpoints?kind=routine", `x`, "", 400, "agent name"},
		{"/v1/agents/a%2F..%2Fb/checkpoints?kind=routine", `x`, "", 400, "agent name"},
		{"/v1/agents/a%00b/checkpoints?kind=routine", `x`, "", 400, "agent name"},
		{"/v1/agents/" + strings.Repeat("a", 129) + "/checkpoints?kind=routine", `x`, "", 400, "129"},
		{"/v1/agents/%ff/checkpoints?nonsense&&", `x`, "", 400, "agent name"},
		{"/v1/agents//checkpoints?kind=routine", `x`, "", 404, ""},
		{"/v1/agents/../checkpoints", `x`, "", 404, ""},
	} {
		r := w.send("POST", c.target, c.body, append([]string{}, nonEmpty(c.header)...)...)
		p := r.problem(t)
		if r.status != c.status || p.Status != c.status || !strings.Contains(p.Detail, c.part) {
			t.Errorf("%.60s %.60q %s: %d %s, want %d with %q", c.target, c.body, c.header, r.status, p.Detail, c.status, c.part)
		}
		if p.Outcome != ckpt.OutcomeNotSaved {
			t.Errorf("%s: outcome %s", c.target, p.Outcome)
		}
	}
	expect.Equal(t, "panics", w.server.Stats().Panics, int64(0))
	expect.Equal(t, "failures", w.server.Stats().Failed, int64(0))
	w.save("a", `"and it still works"`)
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func TestBase64OfTheContract(t *testing.T) {
	w := newWorld(t)
	w.send("PUT", saves+"/"+id1+"?kind=routine", "\x01\x02\x03\xff")
	r := w.send("GET", "/v1/checkpoints/"+id1, "")
	if !strings.Contains(r.body, `"state_base64":"`+base64.StdEncoding.EncodeToString([]byte("\x01\x02\x03\xff"))+`"`) {
		t.Error(r.body)
	}
}

// FuzzSave sends whole requests to the intake: there must be no 5xx and no
// panic.
func FuzzSave(f *testing.F) {
	f.Add("POST", "", "application/json", "", []byte(`{"kind":"routine","state":{"a":[1,2]},"labels":{"a":"b"},"epoch":1}`))
	f.Add("PUT", "kind=routine&run=r&label=a=b&epoch=1", "text/plain", `{"m":1}`, []byte("raw"))
	f.Add("POST", "kind=recovery&base="+id1, ipc.TypeMergePatch, "", []byte(`{"a":null,"b":{"c":1}}`))
	f.Add("POST", "kind=recovery&base="+id1, ipc.TypeJSONPatch, "", []byte(`[{"op":"copy","from":"/a","path":"/b"},{"op":"test","path":"","value":1}]`))
	f.Add("PUT", "base="+id1, ipc.TypeDelta, "", []byte("[[0,1]]\n"))
	store := fuzzedStore(f)
	f.Fuzz(func(t *testing.T, method, query, contentType, metadata string, body []byte) {
		fuzzSave(t, store, method, query, contentType, metadata, body)
	})
}
