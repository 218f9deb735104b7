package db_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// saver puts checkpoints as LangGraph's savers do.
type saver struct {
	t testing.TB
	*db.Store
	scope ckpt.Scope
	agent string
}

func newSaver(t testing.TB) *saver {
	s, _ := open(t)
	t.Cleanup(func() { sound(t, pathOf(s)) })
	return &saver{t, s, ann, "langgraph"}
}

var root1 = ckpt.GraphThread{Thread: "thread 1/ü"}

// channels are JSON values by name.
type channels map[string]string

func jsonValues(values channels) (list []ckpt.GraphValue) {
	for name, text := range values {
		list = append(list, ckpt.GraphValue{Channel: name, GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(text)}})
	}
	slices.SortFunc(list, func(a, b ckpt.GraphValue) int { return strings.Compare(a.Channel, b.Channel) })
	return list
}

func checkpointOf(id string, versions string) ckpt.JSON {
	return ckpt.JSON(fmt.Sprintf(`{"v":4,"id":%q,"ts":"2026-03-01T12:00:00Z","channel_versions":%s,"versions_seen":{}}`, id, versions))
}

func (s *saver) put(th ckpt.GraphThread, parent, id, versions string, values channels, carry ...string) *ckpt.GraphSaved {
	s.t.Helper()
	saved, err := s.GraphPut(s.t.Context(), s.scope, &ckpt.GraphPut{Agent: s.agent, GraphThread: th, Parent: ckpt.Ref(parent), Checkpoint: checkpointOf(id, versions),
		Metadata: ckpt.JSON(`{"source":"loop","step":1}`), Values: jsonValues(values), Carry: carry})
	must(s.t, err)
	return saved
}

func (s *saver) writes(th ckpt.GraphThread, id, task string, writes ...ckpt.GraphWrite) int64 {
	s.t.Helper()
	for i := range writes {
		writes[i].Task = task
	}
	w, err := s.GraphPutWrites(s.t.Context(), s.scope, &ckpt.GraphPutWrites{Agent: s.agent, GraphThread: th, Checkpoint: id, Writes: writes})
	must(s.t, err)
	return w.Written
}

func written(idx int64, channel, value string) ckpt.GraphWrite {
	return ckpt.GraphWrite{Idx: idx, Channel: channel, GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(value)}}
}

// list returns a list. change can modify its query.
func (s *saver) list(change func(*ckpt.GraphQuery)) []ckpt.GraphTuple {
	s.t.Helper()
	q := ckpt.GraphQuery{Agent: s.agent}
	if change != nil {
		change(&q)
	}
	var all []ckpt.GraphTuple
	for {
		page, err := s.GraphTuples(s.t.Context(), s.scope, q)
		must(s.t, err)
		all = append(all, page.Tuples...)
		if page.Next == "" {
			return all
		}
		q.Cursor = string(page.Next)
		if q.Limit > 0 {
			q.Limit -= len(page.Tuples)
		}
	}
}

func (s *saver) get(th ckpt.GraphThread, id string) *ckpt.GraphTuple {
	s.t.Helper()
	tuple, err := s.GraphTuple(s.t.Context(), s.scope, ckpt.GraphGet{Agent: s.agent, GraphThread: th, Checkpoint: id})
	must(s.t, err)
	return tuple
}

// shown returns the compared part of a checkpoint as text.
func shown(t *ckpt.GraphTuple) string {
	if t == nil {
		return "none"
	}
	var b strings.Builder
	for _, v := range t.Values {
		fmt.Fprintf(&b, "%s@%s=%s:%s ", v.Channel, v.Version, v.Type, v.Data)
	}
	for _, w := range t.Writes {
		fmt.Fprintf(&b, "%s/%d:%s=%s ", w.Task, w.Idx, w.Channel, w.Data)
	}
	for _, s := range t.Sends {
		fmt.Fprintf(&b, "send=%s ", s.Data)
	}
	return strings.TrimSpace(b.String())
}

func (s *saver) want(th ckpt.GraphThread, id, want string) {
	s.t.Helper()
	if got := shown(s.get(th, id)); got != want {
		s.t.Errorf("checkpoint %q is\n%s\nwant\n%s", id, got, want)
	}
}

func TestGraphCheckpointIsAnOrdinaryOne(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	saved := s.put(root1, "", "1", `{"a":1,"b":1}`, channels{"a": `{"x": "ü"}`, "b": `[1]`})
	if saved.Replaced || saved.Seq != 1 || len(saved.Missing) != 0 {
		t.Errorf("saved as %+v", saved)
	}
	c, err := s.Checkpoint(t.Context(), ann, string(saved.Checkpoint), true)
	must(t, err)
	want := `{"langgraph":1,"thread":"thread 1/ü","ns":"","values":{"a":{"x": "ü"},"b":[1]},"parent":null,"checkpoint":` + string(checkpointOf("1", `{"a":1,"b":1}`)) +
		`,"metadata":{"source":"loop","step":1},"manifest":[{"channel":"a","version":1,"type":"json","encoding":"json","length":11},` +
		`{"channel":"b","version":1,"type":"json","encoding":"json","length":3}],"head_at":81}`
	if diff := cmp.Diff(want, string(c.State)); diff != "" {
		t.Error(diff)
	}
	if c.Run != saved.Run || !strings.HasPrefix(c.Run, "thread-1---") || string(c.Metadata) != `{"source":"loop","step":1}` || c.ContentType != ckpt.ContentTypeGraph {
		t.Errorf("it is %+v", c)
	}
	p, err := s.Policy(t.Context(), ann, "langgraph")
	must(t, err)
	if p.RoutineKeep != 0 || p.Sensitivity != ckpt.SensitivityOff {
		t.Errorf("the policy is %+v", p)
	}
	if got := sqlite3(t, pathOf(s.Store), `SELECT thread, ns, checkpoint, parent IS NULL, channels, json_extract(state, '$.values.a.x')
		FROM audit_graph_checkpoints g JOIN audit_states s ON s.id = g.id`); got != `thread 1/ü||1|1|["a","b"]|ü` {
		t.Errorf("an auditor sees %s", got)
	}
}

func TestGraphValuesComeBackByteForByte(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	r := rand.New(rand.NewPCG(3, 3))
	random := make([]byte, 5000)
	for i := range random {
		random[i] = byte(r.IntN(256))
	}
	values := []ckpt.GraphValue{
		{Channel: "spaced", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(" { \"b\":1e2 ,\n\t\"a\" : \"\\u00fc\" } ")}},
		{Channel: "no json", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`{"a":1,"a":2}`)}},
		{Channel: "lone", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`"\ud800"`)}},
		{Channel: "bytes", GraphBytes: ckpt.GraphBytes{Type: "msgpack", Data: random}},
		{Channel: "like json", GraphBytes: ckpt.GraphBytes{Type: "msgpack", Data: []byte(`1`)}},
		{Channel: "empty", GraphBytes: ckpt.GraphBytes{Type: "null", Data: nil}},
		{Channel: `odd "quotes" \ and <tags>` + "\n", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`null`)}},
	}
	_, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: root1, Checkpoint: checkpointOf("1", `{"spaced":"0<1","bytes":2}`), Values: values})
	must(t, err)
	got := s.get(root1, "1")
	if len(got.Values) != len(values) || got.Metadata == nil || string(got.Metadata) != "{}" {
		t.Fatalf("%d values came back, and the metadata %s", len(got.Values), got.Metadata)
	}
	for i, v := range got.Values {
		if v.Channel != values[i].Channel || v.Type != values[i].Type || !bytes.Equal(v.Data, values[i].Data) {
			t.Errorf("the value %q came back as %q, %s, %q", values[i].Channel, v.Channel, v.Type, v.Data)
		}
	}
	// Carried values keep their bytes, at a version that is written in another way.
	saved, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: root1, Parent: "1",
		Checkpoint: checkpointOf("2", `{"spaced":"0\u003c1","bytes":2}`), Carry: []string{"spaced", "bytes"}})
	must(t, err)
	if len(saved.Missing) > 0 {
		t.Fatalf("missing: %q", saved.Missing)
	}
	next := s.get(root1, "2")
	for i, of := range []int{0, 3} {
		if !bytes.Equal(next.Values[i].Data, values[of].Data) {
			t.Errorf("carried over: %q", next.Values[i].Channel)
		}
	}
}

func TestGraphCarriesOverFromTheParentAlone(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	s.put(root1, "", "1", `{"a":1,"b":1}`, channels{"a": `"a1"`, "b": `"b1"`})
	s.put(root1, "1", "2", `{"a":2,"b":1}`, channels{"a": `"left"`}, "b")
	s.put(root1, "1", "3", `{"a":2,"b":1}`, channels{"a": `"right"`}, "b") // another fork that creates the same version
	s.put(root1, "2", "4", `{"a":2,"b":2}`, channels{"b": `"b2"`}, "a")
	s.put(root1, "3", "5", `{"a":2,"b":1,"c":1}`, channels{"c": `"c1"`}, "a", "b")
	s.want(root1, "4", `a@2=json:"left" b@2=json:"b2"`)
	s.want(root1, "5", `b@1=json:"b1" a@2=json:"right" c@1=json:"c1"`)
	s.want(root1, "", `b@1=json:"b1" a@2=json:"right" c@1=json:"c1"`)
	s.want(root1, "9", "none")

	before := len(s.list(nil))
	for name, ask := range map[string]func() *ckpt.GraphSaved{
		"another version":  func() *ckpt.GraphSaved { return s.put(root1, "5", "6", `{"a":3}`, nil, "a") },
		"no version":       func() *ckpt.GraphSaved { return s.put(root1, "5", "6", `{}`, nil, "a") },
		"no such parent":   func() *ckpt.GraphSaved { return s.put(root1, "0", "6", `{"a":2}`, nil, "a") },
		"another thread's": func() *ckpt.GraphSaved { return s.put(ckpt.GraphThread{Thread: "x"}, "5", "6", `{"a":2}`, nil, "a") },
		"another namespace": func() *ckpt.GraphSaved {
			return s.put(ckpt.GraphThread{Thread: root1.Thread, NS: "sub:1"}, "5", "6", `{"a":2}`, nil, "a")
		},
	} {
		if saved := ask(); !slices.Equal(saved.Missing, []string{"a"}) || saved.Checkpoint != "" {
			t.Errorf("%s: %+v", name, saved)
		}
	}
	if after := len(s.list(nil)); after != before {
		t.Errorf("%d checkpoints became %d", before, after)
	}
	parents := map[string]string{}
	for _, tuple := range s.list(nil) {
		parents[tuple.ID] = string(tuple.Parent)
	}
	if diff := cmp.Diff(map[string]string{"1": "", "2": "1", "3": "1", "4": "2", "5": "3"}, parents); diff != "" {
		t.Error(diff)
	}
	// Our own parents are the same.
	if got := sqlite3(t, pathOf(s.Store), `SELECT count(*) FROM audit_graph_checkpoints g JOIN audit_checkpoints c ON c.id = g.id
		JOIN audit_graph_checkpoints p ON p.id = c.parent WHERE p.checkpoint = g.parent`); got != "4" {
		t.Errorf("%s of 4 parents are the same in both", got)
	}
}

// TestGraphForkOfTheFirstCheckpointHasItsValues: LangGraph forks the first checkpoint of a thread by a put that has
// neither a parent nor new versions.
func TestGraphForkOfTheFirstCheckpointHasItsValues(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	s.put(root1, "", "1", `{"a":1,"b":1}`, channels{"a": `"a1"`, "b": `"b1"`})
	s.put(root1, "1", "2", `{"a":2,"b":1}`, channels{"a": `"left"`}, "b")
	s.put(root1, "1", "3", `{"a":2,"b":1}`, channels{"a": `"right"`}, "b")
	s.put(root1, "", "4", `{"a":1,"b":1}`, nil, "a", "b")
	s.want(root1, "4", `a@1=json:"a1" b@1=json:"b1"`)
	if tuple := s.get(root1, "4"); tuple.Parent != "" {
		t.Errorf("the parent of the fork is %q", tuple.Parent)
	}
	if saved := s.put(root1, "", "5", `{"a":2,"b":1}`, nil, "a", "b"); !slices.Equal(saved.Missing, []string{"a"}) || saved.Checkpoint != "" {
		t.Errorf("of a version that two forks have made: %+v", saved)
	}
	s.want(root1, "5", "none")

	// A value that no checkpoint has is left out, because no client has ever sent it.
	s.put(root1, "", "6", `{"a":9,"z":1}`, nil, "a", "z")
	s.want(root1, "6", "")
	for _, th := range []ckpt.GraphThread{{Thread: "new"}, {Thread: root1.Thread, NS: "sub:1"}} {
		for range 2 {
			if saved := s.put(th, "", "1", `{"a":1}`, nil, "a"); len(saved.Missing) > 0 {
				t.Errorf("%v: %+v", th, saved)
			}
			s.want(th, "1", "")
		}
	}

	// Long threads are not searched to their end, because the client has the value.
	long := ckpt.GraphThread{Thread: "long"}
	for n := range 40 {
		s.put(long, "", fmt.Sprintf("%02d", n), `{"a":1}`, channels{"a": `"same"`})
	}
	if saved := s.put(long, "", "99", `{"a":1}`, nil, "a"); !slices.Equal(saved.Missing, []string{"a"}) {
		t.Errorf("in a long thread: %+v", saved)
	}
}

// TestGraphPutAgainReplaces: the second put of an id replaces the first, and is found in its place. An identical
// put does nothing.
func TestGraphPutAgainReplaces(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	s.put(root1, "", "1", `{"a":1}`, channels{"a": `"` + strings.Repeat("long ", 5000) + `"`})
	s.writes(root1, "1", "t", written(0, "a", `1`))
	first := s.put(root1, "1", "2", `{"a":2}`, channels{"a": `"old"`})
	again := s.put(root1, "1", "2", `{"a":2}`, channels{"a": `"old"`})
	if again.Checkpoint != first.Checkpoint || again.Replaced {
		t.Errorf("the same put answered %+v, then %+v", first, again)
	}
	new := s.put(root1, "1", "2", `{"a":3}`, channels{"a": `"new"`})
	if !new.Replaced || new.Checkpoint == first.Checkpoint {
		t.Errorf("another put answered %+v", new)
	}
	s.want(root1, "2", `a@3=json:"new"`)
	_, err := s.Checkpoint(t.Context(), ann, string(first.Checkpoint), false)
	wantCode(t, err, ckpt.CodeNotFound)
	s.put(root1, "", "1", `{"a":1}`, channels{"a": `"short"`})
	s.want(root1, "1", `a@1=json:"short" t/0:a=1`)
	if n := len(s.list(nil)); n != 2 {
		t.Errorf("there are %d checkpoints, not 2", n)
	}

	// A pinned checkpoint stays, like an ordinary one.
	pinned := true
	_, err = s.Patch(t.Context(), ann, string(new.Checkpoint), ckpt.CheckpointPatch{Pinned: &pinned})
	must(t, err)
	s.put(root1, "1", "2", `{"a":4}`, channels{"a": `"newest"`})
	s.want(root1, "2", `a@4=json:"newest"`)
	_, err = s.Checkpoint(t.Context(), ann, string(new.Checkpoint), true)
	must(t, err)
}

func TestGraphWritesAreKeptAndSpecialOnesReplaced(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	sub := ckpt.GraphThread{Thread: root1.Thread, NS: "sub:1"}
	if n := s.writes(root1, "1", "b", written(0, "x", `"first"`), written(1, "y", `"y"`)); n != 2 {
		t.Errorf("%d were written", n)
	}
	s.put(root1, "", "1", `{}`, nil) // after its writes
	s.put(sub, "", "1", `{}`, nil)   // with the same id
	if n := s.writes(root1, "1", "b", written(0, "x", `"second"`), written(2, "z", `"z"`)); n != 1 {
		t.Errorf("%d were written of a write that is there and one that is not", n)
	}
	s.writes(root1, "1", "a", written(0, "x", `"of a"`), written(10, "x", `"last"`), written(9, "x", `"ninth"`))
	s.writes(root1, "1", "b", written(-1, "__error__", `"1"`))
	s.writes(root1, "1", "b", written(-1, "__error__", `"2"`))
	s.writes(root1, "1", "b", written(-1, "__error__", `"3"`), written(5, "v", `"v"`)) // not all of these are special
	s.want(root1, "1", `a/0:x="of a" a/9:x="ninth" a/10:x="last" b/-1:__error__="2" b/0:x="first" b/1:y="y" b/2:z="z" b/5:v="v"`)
	s.want(sub, "1", "")
	s.writes(sub, "1", "b", written(0, "x", `"sub"`))
	s.want(sub, "1", `b/0:x="sub"`)
	if n := s.writes(root1, "1", "c"); n != 0 {
		t.Errorf("%d were written of none", n)
	}
	long := strings.Repeat("again, and ", 1000) + "again"
	s.writes(root1, "2", "t", ckpt.GraphWrite{Channel: "x", GraphBytes: ckpt.GraphBytes{Type: "msgpack", Data: []byte(long)}})
	s.put(root1, "1", "2", `{}`, nil)
	s.want(root1, "2", "t/0:x="+long)
	if got := sqlite3(t, pathOf(s.Store), `SELECT task, idx, value FROM audit_graph_writes WHERE ns <> ''`); got != `b|0|"sub"` {
		t.Errorf("an auditor sees %s", got)
	}
}

func TestGraphWritesComeByPathTaskAndIndex(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	s.put(root1, "", "0", `{"m":1}`, channels{"m": `"seed"`})
	for task, path := range map[string]string{"d": "~1", "c": "~2", "b": "~3", "a": "~4", "y": "", "z": ""} {
		for idx := range int64(2) {
			w := written(idx, "m", fmt.Sprintf(`"%s%d"`, task, idx))
			w.Path = path
			s.writes(root1, "0", task, w)
		}
	}
	s.put(root1, "0", "1", `{}`, nil)
	const want = `y0 y1 z0 z1 d0 d1 c0 c1 b0 b1 a0 a1`
	values := func(writes []ckpt.GraphWrite) string {
		var list []string
		for _, w := range writes {
			list = append(list, strings.Trim(string(w.Data), `"`))
		}
		return strings.Join(list, " ")
	}
	history, err := s.GraphHistory(t.Context(), ann, ckpt.GraphHistoryQuery{Agent: "langgraph", GraphThread: root1, Checkpoint: "1", Channels: []string{"m"}})
	must(t, err)
	listed := s.list(nil)
	for call, got := range map[string]string{"get": values(s.get(root1, "0").Writes), "list": values(listed[1].Writes), "history": values(history[0].Writes)} {
		if got != want {
			t.Errorf("%s answers the writes as %s\nwant %s", call, got, want)
		}
	}
}

func TestGraphSendsOfOldCheckpoints(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	put := func(parent, id string, v int) {
		t.Helper()
		_, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: root1, Parent: ckpt.Ref(parent),
			Checkpoint: ckpt.JSON(fmt.Sprintf(`{"v":%d,"id":%q}`, v, id))})
		must(t, err)
	}
	put("", "0", 1)
	send := func(task, path string, values ...string) {
		writes := []ckpt.GraphWrite{written(0, "other", `0`)}
		for i, v := range values {
			w := written(int64(i+1), ckpt.GraphTasks, v)
			w.Path = path
			writes = append(writes, w)
		}
		s.writes(root1, "0", task, writes...)
	}
	send("a", "2", `"late"`)
	send("b", "1", `"early"`, `"next"`)
	put("0", "1", 3)
	put("0", "2", 4)
	s.want(root1, "1", `send="early" send="next" send="late"`)
	s.want(root1, "2", "")
}

func TestGraphListFiltersAndPages(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	other := ckpt.GraphThread{Thread: "other"}
	sub := ckpt.GraphThread{Thread: root1.Thread, NS: "sub:1"}
	put := func(th ckpt.GraphThread, id, metadata string) {
		t.Helper()
		_, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Checkpoint: checkpointOf(id, `{}`), Metadata: ckpt.JSON(metadata)})
		must(t, err)
	}
	for i := range 60 {
		put(root1, fmt.Sprintf("%03d", i*2), fmt.Sprintf(`{"step":%d,"user":{"a":[1],"b":"ü"},"none":null}`, i%3))
	}
	put(sub, "051", `{"step": 1.0, "user":{"b":"\u00fc","a":[1]}}`)
	put(other, "050", `{"step":1}`)
	put(other, "001", `{}`)
	ids := func(change func(*ckpt.GraphQuery)) string {
		var list []string
		for _, tuple := range s.list(change) {
			list = append(list, tuple.Thread[:1]+tuple.NS+"/"+tuple.ID)
		}
		return strings.Join(list, " ")
	}
	str := func(s string) *string { return &s }
	if n := len(s.list(nil)); n != 63 {
		t.Errorf("%d of 63", n)
	}
	for want, change := range map[string]func(*ckpt.GraphQuery){
		"tsub:1/051": func(q *ckpt.GraphQuery) { q.Thread, q.NS = str(root1.Thread), str("sub:1") },
		"tsub:1/051 o/050 t/050 t/044": func(q *ckpt.GraphQuery) {
			q.Before, q.Filter, q.Limit = "056", map[string]ckpt.JSON{"step": ckpt.JSON(`1`)}, 4
		},
		"o/050 t/050": func(q *ckpt.GraphQuery) { q.Checkpoint = "050" },
		"t/000":       func(q *ckpt.GraphQuery) { q.Before, q.Thread = "002", str(root1.Thread) },
		"t/118 t/116": func(q *ckpt.GraphQuery) { q.Limit = 2 },
		"tsub:1/051 t/050": func(q *ckpt.GraphQuery) {
			q.Before, q.Limit, q.Filter = "052", 2, map[string]ckpt.JSON{"user": ckpt.JSON(`{"b":"ü","a":[1]}`)}
		},
		"":            func(q *ckpt.GraphQuery) { q.Filter = map[string]ckpt.JSON{"user": ckpt.JSON(`{"b":"ü","a":[2]}`)} },
		"o/050 o/001": func(q *ckpt.GraphQuery) { q.Thread = str("other") },
		"t/002 t/000": func(q *ckpt.GraphQuery) {
			q.Filter, q.Before, q.NS = map[string]ckpt.JSON{"none": ckpt.JSON(`null`)}, "004", str("")
		},
	} {
		if got := ids(change); got != want {
			t.Errorf("listed\n%s\nwant\n%s", got, want)
		}
	}
	if got := ids(func(q *ckpt.GraphQuery) { q.Thread = str("nobody") }) + ids(func(q *ckpt.GraphQuery) { q.Agent = "nobody" }); got != "" {
		t.Errorf("of nobody: %s", got)
	}
	_, err := s.GraphTuples(t.Context(), ann, ckpt.GraphQuery{Agent: "langgraph", Cursor: "x"})
	wantCode(t, err, ckpt.CodeInvalid)
}

func TestGraphHistoryOfDeltaChannels(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	s.put(root1, "", "0", `{"m":1}`, channels{"m": `"before"`, "n": `"n0"`})
	s.put(root1, "0", "1", `{"m":2}`, channels{"m": `"seed"`})
	s.put(root1, "1", "2", `{}`, nil)
	s.put(root1, "1", "x", `{}`, nil) // a fork that does not count
	s.put(root1, "2", "3", `{}`, nil)
	s.writes(root1, "0", "t", written(0, "m", `"too old"`), written(1, "n", `"on 0"`))
	s.writes(root1, "1", "b", written(0, "m", `"b"`))
	s.writes(root1, "1", "a", written(0, "m", `"a0"`), written(1, "m", `"a1"`), written(2, "other", `1`))
	s.writes(root1, "2", "t", written(0, "m", `"on 2"`))
	s.writes(root1, "x", "t", written(0, "m", `"of the fork"`))
	s.writes(root1, "3", "t", written(0, "m", `"pending"`))
	history := func(th ckpt.GraphThread, id string, names ...string) string {
		t.Helper()
		list, err := s.GraphHistory(t.Context(), ann, ckpt.GraphHistoryQuery{Agent: "langgraph", GraphThread: th, Checkpoint: id, Channels: names})
		must(t, err)
		var b strings.Builder
		for _, h := range list {
			fmt.Fprintf(&b, "%s:", h.Channel)
			if h.Seed != nil {
				fmt.Fprintf(&b, " seed %s", h.Seed.Data)
			}
			for _, w := range h.Writes {
				fmt.Fprintf(&b, " %s", w.Data)
			}
			b.WriteString("; ")
		}
		return b.String()
	}
	for want, got := range map[string]string{
		`m: seed "seed" "a0" "a1" "b" "on 2"; n: seed "n0" "on 0"; z:; `: history(root1, "3", "m", "n", "z", "m"),
		`m: seed "seed" "a0" "a1" "b"; `:                                 history(root1, "x", "m"),
		`m: seed "before" "too old"; `:                                   history(root1, "1", "m"),
		`m:; `:                                                           history(root1, "nothing", "m"),
		`n:; `:                                                           history(ckpt.GraphThread{Thread: "no"}, "", "n"),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestGraphDeleteThread(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	sub := ckpt.GraphThread{Thread: root1.Thread, NS: "sub:1"}
	other := ckpt.GraphThread{Thread: "other"}
	big := `"` + strings.Repeat("x", 10000) + `"`
	for i, th := range []ckpt.GraphThread{root1, sub, other} {
		s.put(th, "", "1", `{"a":1}`, channels{"a": big})
		s.put(th, "1", "2", `{"a":1,"b":1}`, channels{"b": fmt.Sprint(i)}, "a")
		s.writes(th, "2", "t", written(0, "x", `1`))
	}
	gone, err := s.GraphDeleteThread(t.Context(), ann, "langgraph", root1.Thread)
	must(t, err)
	if gone.Removed != 4 {
		t.Errorf("%d checkpoints went", gone.Removed)
	}
	s.want(root1, "", "none")
	s.want(sub, "2", "none")
	s.want(other, "2", `a@1=json:`+big+` b@1=json:2 t/0:x=1`)
	if got := sqlite3(t, pathOf(s.Store), `SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM graph_threads), (SELECT count(*) FROM graph_checkpoints),
		(SELECT count(*) FROM graph_writes), (SELECT count(*) FROM segments)`); got != "1|1|2|1|2" {
		t.Errorf("there are runs, threads, checkpoints, writes, segments: %s", got)
	}
	for _, agent := range []string{"langgraph", "nobody"} {
		if gone, err = s.GraphDeleteThread(t.Context(), ann, agent, root1.Thread); err != nil || gone.Removed != 0 {
			t.Errorf("a thread that is gone: %v, %v", gone, err)
		}
	}
	s.put(root1, "", "1", `{"a":1}`, channels{"a": `"again"`})
	s.want(root1, "", `a@1=json:"again"`)

	pinned := true
	_, err = s.Patch(t.Context(), ann, string(s.put(root1, "", "7", `{}`, nil).Checkpoint), ckpt.CheckpointPatch{Pinned: &pinned})
	must(t, err)
	_, err = s.GraphDeleteThread(t.Context(), ann, "langgraph", root1.Thread)
	wantCode(t, err, ckpt.CodeConflict)
	s.want(root1, "1", `a@1=json:"again"`)
}

func TestGraphDeleteRuns(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	for i, run := range []string{`"r1"`, `"r2"`, `"r1"`, `"r3"`, `7`} {
		_, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: ckpt.GraphThread{Thread: fmt.Sprint("t", i%2)}, Checkpoint: checkpointOf(fmt.Sprint(i), `{}`),
			Metadata: ckpt.JSON(`{"run_id":` + run + `}`)})
		must(t, err)
		s.writes(ckpt.GraphThread{Thread: fmt.Sprint("t", i%2)}, fmt.Sprint(i), "t", written(0, "x", run))
	}
	gone, err := s.GraphDeleteRuns(t.Context(), ann, "langgraph", []string{"r1", "r3", "r4"})
	must(t, err)
	var left []string
	for _, tuple := range s.list(nil) {
		left = append(left, tuple.ID)
	}
	if gone.Removed != 3 || !slices.Equal(left, []string{"4", "1"}) {
		t.Errorf("%d went, left are %q", gone.Removed, left)
	}
	if got := sqlite3(t, pathOf(s.Store), `SELECT group_concat(checkpoint) FROM (SELECT checkpoint FROM graph_writes ORDER BY 1)`); got != "1,4" {
		t.Errorf("writes are left of %s", got)
	}
	s.put(ckpt.GraphThread{Thread: "t1"}, "1", "8", `{}`, nil) // the head was removed, another checkpoint is the head now
}

// TestGraphPruneKeepsTheParentOfAnOldCheckpointForItsSendsAlone: a checkpoint from before version 4 takes its tasks
// from the writes of its parent.
func TestGraphPruneKeepsTheParentOfAnOldCheckpointForItsSendsAlone(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	for _, thread := range []string{"with", "without"} {
		th := ckpt.GraphThread{Thread: thread}
		for _, id := range []string{"1", "2", "3"} {
			parent := map[string]ckpt.Ref{"2": "1", "3": "2"}[id]
			_, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Parent: parent,
				Checkpoint: ckpt.JSON(`{"v":1,"id":"` + id + `","channel_versions":{}}`), Metadata: ckpt.JSON(`{}`)})
			must(t, err)
			s.writes(th, id, "t", written(0, "m", `"x"`))
		}
	}
	s.writes(ckpt.GraphThread{Thread: "with"}, "2", "t", written(1, ckpt.GraphTasks, `"sent"`))
	_, err := s.GraphPrune(t.Context(), ann, ckpt.GraphPrune{Agent: "langgraph", Threads: []string{"with", "without"}, Strategy: ckpt.GraphKeepLatest})
	must(t, err)
	var left []string
	for _, tuple := range s.list(nil) {
		left = append(left, tuple.Thread+"/"+tuple.ID)
	}
	slices.Sort(left)
	if !slices.Equal(left, []string{"with/2", "with/3", "without/3"}) {
		t.Errorf("left are %q", left)
	}
}

func TestGraphPruneKeepsWhatTheNewestNeeds(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	sub := ckpt.GraphThread{Thread: root1.Thread, NS: "sub:1"}
	put := func(th ckpt.GraphThread, parent, id string, values channels, metadata string) {
		t.Helper()
		_, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Parent: ckpt.Ref(parent), Checkpoint: checkpointOf(id, `{}`),
			Metadata: ckpt.JSON(metadata), Values: jsonValues(values)})
		must(t, err)
		s.writes(th, id, "t", written(0, "m", `"`+id+`"`))
	}
	put(root1, "", "1", channels{"m": `"old seed"`}, `{}`)
	put(root1, "1", "2", channels{"m": `"seed"`}, `{}`)
	put(root1, "2", "3", nil, `{}`)
	put(root1, "2", "3x", nil, `{}`) // not an ancestor
	put(root1, "3", "4", nil, `{"counters_since_delta_snapshot":{"m":[2,2]}}`)
	put(sub, "", "1", channels{"m": `"1"`}, `{}`)
	put(sub, "1", "2", channels{"m": `"2"`}, `{"counters_since_delta_snapshot":{"m":[0,0]}}`)
	s.writes(root1, "0", "t", written(0, "m", `"of a checkpoint that never came"`))
	s.writes(root1, "9", "t", written(0, "m", `"of one that will come"`))
	before, err := s.GraphHistory(t.Context(), ann, ckpt.GraphHistoryQuery{Agent: "langgraph", GraphThread: root1, Channels: []string{"m"}})
	must(t, err)

	gone, err := s.GraphPrune(t.Context(), ann, ckpt.GraphPrune{Agent: "langgraph", Threads: []string{root1.Thread, "nobody"}, Strategy: ckpt.GraphKeepLatest})
	must(t, err)
	var left []string
	for _, tuple := range s.list(nil) {
		left = append(left, tuple.NS+"/"+tuple.ID)
	}
	if gone.Removed != 3 || !slices.Equal(left, []string{"/4", "/3", "sub:1/2", "/2"}) {
		t.Errorf("%d went, left are %q", gone.Removed, left)
	}
	after, err := s.GraphHistory(t.Context(), ann, ckpt.GraphHistoryQuery{Agent: "langgraph", GraphThread: root1, Channels: []string{"m"}})
	must(t, err)
	if diff := cmp.Diff(before, after); diff != "" || after[0].Seed == nil {
		t.Errorf("the delta channel was cut off: %s", diff)
	}
	if got := sqlite3(t, pathOf(s.Store), `SELECT group_concat(c) FROM (SELECT ns || '/' || checkpoint AS c FROM audit_graph_writes ORDER BY 1)`); got != "/2,/3,/4,/9,sub:1/2" {
		t.Errorf("writes are left of %s", got)
	}
	_, err = s.GraphPrune(t.Context(), ann, ckpt.GraphPrune{Agent: "langgraph", Threads: []string{root1.Thread}, Strategy: ckpt.GraphDelete})
	must(t, err)
	s.want(root1, "", "none")
	_, err = s.GraphPrune(t.Context(), ann, ckpt.GraphPrune{Agent: "langgraph", Strategy: "some"})
	wantCode(t, err, ckpt.CodeInvalid)
}

func TestGraphCopyThread(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	sub := ckpt.GraphThread{Thread: root1.Thread, NS: "sub:1"}
	big := `"` + strings.Repeat("y", 20000) + `"`
	s.put(root1, "", "1", `{"a":1}`, channels{"a": big})
	s.put(root1, "1", "2", `{"a":1,"b":1}`, channels{"b": `2`}, "a")
	s.put(sub, "", "3", `{"a":1}`, channels{"a": `3`})
	s.writes(root1, "2", "t", written(0, "x", `1`), written(1, "x", `2`))
	s.writes(sub, "4", "t", written(0, "x", `"no checkpoint"`))
	for range 2 {
		copied, err := s.GraphCopyThread(t.Context(), ann, ckpt.GraphCopy{Agent: "langgraph", From: root1.Thread, To: "copy"})
		must(t, err)
		if copied.Copied != 3 {
			t.Errorf("%d were copied", copied.Copied)
		}
	}
	s.want(ckpt.GraphThread{Thread: "copy"}, "", `a@1=json:`+big+` b@1=json:2 t/0:x=1 t/1:x=2`)
	s.want(ckpt.GraphThread{Thread: "copy", NS: "sub:1"}, "", `a@1=json:3`)
	if got := s.get(ckpt.GraphThread{Thread: "copy"}, "2"); got.Thread != "copy" || got.Parent != "1" {
		t.Errorf("the copy is %s/%s", got.Thread, got.Parent)
	}
	if n := len(s.list(nil)); n != 6 {
		t.Errorf("there are %d checkpoints, not 6", n)
	}
	if got := sqlite3(t, pathOf(s.Store), `SELECT count(*) FROM graph_writes`); got != "6" {
		t.Errorf("there are %s writes, not 6", got)
	}
	// The first thread is removed, and the copy stays.
	_, err := s.GraphDeleteThread(t.Context(), ann, "langgraph", root1.Thread)
	must(t, err)
	s.want(ckpt.GraphThread{Thread: "copy"}, "1", `a@1=json:`+big)
}

// TestGraphGoesWithItsCheckpoint: data that belongs to a checkpoint is removed with it, in every way to remove it.
func TestGraphGoesWithItsCheckpoint(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	var saved []*ckpt.GraphSaved
	for i := range 6 {
		saved = append(saved, s.put(root1, "", fmt.Sprint(i), `{"a":1}`, channels{"a": `"` + strings.Repeat(fmt.Sprint(i), 6000) + `"`}))
		s.writes(root1, fmt.Sprint(i), "t", written(0, "x", `1`))
	}
	left := func() string {
		return sqlite3(t, pathOf(s.Store), `SELECT (SELECT group_concat(id) FROM (SELECT id FROM graph_checkpoints ORDER BY 1)) || ' ' || (SELECT group_concat(checkpoint) FROM (SELECT checkpoint FROM graph_writes ORDER BY 1))`)
	}
	_, err := s.Delete(t.Context(), ann, string(saved[1].Checkpoint))
	must(t, err)
	if got := left(); got != "0,2,3,4,5 0,2,3,4,5" {
		t.Errorf("after a delete there are %s", got)
	}
	p := ckpt.GraphPolicy()
	p.RoutineKeep = 2
	_, err = s.SetPolicy(t.Context(), ann, "langgraph", p)
	must(t, err)
	if got := left(); got != "4,5 4,5" {
		t.Errorf("after a policy there are %s", got)
	}
	s.put(root1, "5", "6", `{}`, nil)
	if got := left(); got != "5,6 5" {
		t.Errorf("after a save there are %s", got)
	}
	if got := s.put(root1, "5", "5", `{}`, nil); !got.Replaced {
		t.Errorf("what retention takes in the same save is replaced: %+v", got)
	}
	s.want(root1, "5", "")
	_, err = s.Erase(t.Context(), ann, "langgraph")
	must(t, err)
	if got := sqlite3(t, pathOf(s.Store), `SELECT (SELECT count(*) FROM graph_threads) + (SELECT count(*) FROM graph_checkpoints) + (SELECT count(*) FROM graph_writes)`); got != "0" {
		t.Errorf("after an erase %s rows are left", got)
	}
}

func TestGraphOwnersAreApart(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	s.put(root1, "", "1", `{"a":1}`, channels{"a": `"ann's"`})
	his := &saver{t, s.Store, bob, "langgraph"}
	his.want(root1, "1", "none")
	if saved := his.put(root1, "1", "2", `{"a":1}`, nil, "a"); len(saved.Missing) != 1 {
		t.Errorf("what is ann's was carried over: %+v", saved)
	}
	if gone, err := s.GraphDeleteThread(t.Context(), bob, "langgraph", root1.Thread); err != nil || gone.Removed != 0 {
		t.Errorf("bob removed %v, %v", gone, err)
	}
	his.put(root1, "", "1", `{"a":1}`, channels{"a": `"bob's"`})
	s.want(root1, "1", `a@1=json:"ann's"`)
	his.want(root1, "1", `a@1=json:"bob's"`)
	admin := root
	admin.Target = ann.Caller.Owner
	(&saver{t, s.Store, admin, "langgraph"}).want(root1, "1", `a@1=json:"ann's"`)
	if got := sqlite3(t, pathOf(s.Store), `SELECT count(*) FROM audit_log WHERE action = 'admin_read' AND who = 'uid:0'`); got == "0" {
		t.Error("an administrator read it, and nothing says so")
	}
}

func TestGraphKeepsAPolicyThatSomebodySet(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 1
	_, err := s.SetPolicy(t.Context(), ann, "langgraph", p)
	must(t, err)
	s.put(root1, "", "1", `{}`, nil)
	s.put(root1, "1", "2", `{}`, nil)
	if n := len(s.list(nil)); n != 1 {
		t.Errorf("%d checkpoints stay of 1", n)
	}
	// An agent that has saved in another way before, and has no policy of its own, gets one.
	save(t, s.Store, ann, "plain", ckpt.KindRoutine, `1`)
	s.agent = "plain"
	for i := range 5 {
		s.put(root1, "", fmt.Sprint(i), `{}`, nil)
	}
	if n := len(s.list(nil)); n != 5 {
		t.Errorf("%d checkpoints stay of 5", n)
	}
}

func TestGraphSecrets(t *testing.T) {
	t.Parallel()
	c := newClock()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.Secrets = secrets.Scan{}
	st := openWith(t, o)
	s := &saver{t, st, ann, "langgraph"}
	const key = "AKIAIOSFODNN7EXAMPLQ"
	s.put(root1, "", "1", `{"a":1}`, channels{"a": `{"aws":"` + key + `"}`})
	s.want(root1, "1", `a@1=json:{"aws":"`+key+`"}`) // with a warning
	p := ckpt.GraphPolicy()
	p.Secrets = ckpt.SecretsRedact
	_, err := st.SetPolicy(t.Context(), ann, "langgraph", p)
	must(t, err)
	s.put(root1, "", "2", `{"a":1,"b":1}`, channels{"a": `{"aws":"` + key + `"}`, "b": `[1, 2]`})
	s.writes(root1, "2", "t", written(0, "x", `{"aws":"`+key+`"}`))
	tuple := s.get(root1, "2")
	if text := shown(tuple); strings.Contains(text, key) || !strings.Contains(text, `b@1=json:[1, 2]`) || !json.Valid(tuple.Values[0].Data) {
		t.Errorf("redacted it is %s", text)
	}
	p.Secrets = ckpt.SecretsReject
	_, err = st.SetPolicy(t.Context(), ann, "langgraph", p)
	must(t, err)
	_, err = st.GraphPutWrites(t.Context(), ann, &ckpt.GraphPutWrites{Agent: "langgraph", GraphThread: root1, Checkpoint: "3", Writes: []ckpt.GraphWrite{
		{Task: "t", Channel: "x", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`"` + key + `"`)}}}})
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = st.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: root1, Checkpoint: checkpointOf("3", `{}`), Values: jsonValues(channels{"a": `"` + key + `"`})})
	wantCode(t, err, ckpt.CodeInvalid)
}

// TestGraphTagsAreThoseOfWhatIsKept: the store keeps other bytes than the client sent, so the client does not have
// the stored value.
func TestGraphTagsAreThoseOfWhatIsKept(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.Secrets = secrets.Scan{}
	s := &saver{t, openWith(t, o), ann, "langgraph"}
	s.put(root1, "", "1", `{"a":1}`, channels{"a": `1`})
	policy := ckpt.GraphPolicy()
	policy.Secrets = ckpt.SecretsRedact
	_, err := s.SetPolicy(t.Context(), ann, "langgraph", policy)
	must(t, err)
	plain := strings.Repeat("nothing of interest ", 20)
	saved := s.put(root1, "1", "2", `{"a":2,"b":1}`, channels{"a": `{"text":"` + plain + `","aws":"AKIAIOSFODNN7EXAMPLQ"}`, "b": `"` + plain + `"`})
	tuple, err := s.GraphTuple(t.Context(), ann, ckpt.GraphGet{Agent: "langgraph", GraphThread: root1, Have: saved.Tags})
	must(t, err)
	for _, v := range tuple.Values {
		if v.Held != (v.Channel == "b") || strings.Contains(string(v.Data), "AKIA") {
			t.Errorf("%s is held: %v, and sent as %s", v.Channel, v.Held, v.Data)
		}
	}
}

func TestGraphDamageIsNotServed(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	g := &saver{t, s, ann, "langgraph"}
	g.put(root1, "", "1", `{"a":1}`, channels{"a": `"` + strings.Repeat("z", 9000) + `"`})
	g.put(root1, "1", "2", `{}`, nil)
	g.writes(root1, "2", "t", written(0, "x", `"whole"`))
	path := pathOf(s)
	must(t, s.Close())
	forge(t, path, `UPDATE graph_writes SET data = CAST('"holes"' AS BLOB); UPDATE segments SET data = zeroblob(length(data))`)
	report, err := audit.Verify(t.Context(), path, nil)
	must(t, err)
	var rules []string
	for _, p := range report.Problems {
		rules = append(rules, p.Rule)
	}
	if !slices.Contains(rules, "graph_write") {
		t.Errorf("verify finds %q", rules)
	}
	s = openWith(t, options(path, newClock()))
	for _, id := range []string{"1", "2"} {
		_, err := s.GraphTuples(t.Context(), ann, ckpt.GraphQuery{Agent: "langgraph", Thread: &root1.Thread, NS: new(string), Checkpoint: id, Limit: 1})
		wantCode(t, err, ckpt.CodeCorrupt)
	}
	// A damaged parent counts as no parent.
	saved, err := s.GraphPut(t.Context(), ann, &ckpt.GraphPut{Agent: "langgraph", GraphThread: root1, Parent: "1", Checkpoint: checkpointOf("3", `{"a":1}`), Carry: []string{"a"}})
	if err != nil || !slices.Equal(saved.Missing, []string{"a"}) {
		t.Errorf("carried over from a damaged parent: %v, %v", saved, err)
	}
}

func TestGraphSurvivesExportAndImport(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	s.put(root1, "", "1", `{"a":1}`, channels{"a": `"` + strings.Repeat("e", 9000) + `"`})
	s.put(root1, "1", "2", `{"a":1,"b":1}`, channels{"b": `2`}, "a")
	var text bytes.Buffer
	must(t, s.Export(t.Context(), ann, "langgraph", &text))
	to := newSaver(t)
	_, err := to.Import(t.Context(), ann, ckpt.ImportRequest{}, bytes.NewReader(text.Bytes()))
	must(t, err)
	if diff := cmp.Diff(s.list(nil), to.list(nil)); diff != "" {
		t.Error(diff)
	}
	s.writes(root1, "2", "task", written(0, "b", `3`))
	var more bytes.Buffer
	must(t, s.Export(t.Context(), ann, "langgraph", &more))
	_, err = to.Import(t.Context(), ann, ckpt.ImportRequest{}, bytes.NewReader(more.Bytes()))
	if wantCode(t, err, ckpt.CodeConflict); err != nil && !strings.Contains(err.Error(), "a write of a LangGraph task for checkpoint 2") {
		t.Error(err)
	}
	to.put(root1, "2", "3", `{"a":1,"b":2}`, channels{"b": `3`}, "a")
	_, err = s.Import(t.Context(), ann, ckpt.ImportRequest{}, bytes.NewReader(text.Bytes())) // everything is already there
	must(t, err)
	if n := len(s.list(nil)); n != 2 {
		t.Errorf("there are %d checkpoints, not 2", n)
	}
}

func TestGraphRefusals(t *testing.T) {
	t.Parallel()
	s := newSaver(t)
	put := func(change func(*ckpt.GraphPut)) error {
		r := &ckpt.GraphPut{Agent: "langgraph", GraphThread: root1, Checkpoint: checkpointOf("1", `{}`)}
		change(r)
		_, err := s.GraphPut(t.Context(), ann, r)
		return err
	}
	for name, change := range map[string]func(*ckpt.GraphPut){
		"no thread":     func(r *ckpt.GraphPut) { r.Thread = "" },
		"NUL":           func(r *ckpt.GraphPut) { r.NS = "a\x00b" },
		"long":          func(r *ckpt.GraphPut) { r.Thread = strings.Repeat("x", 5000) },
		"no checkpoint": func(r *ckpt.GraphPut) { r.Checkpoint = nil },
		"an array":      func(r *ckpt.GraphPut) { r.Checkpoint = ckpt.JSON(`[]`) },
		"no id":         func(r *ckpt.GraphPut) { r.Checkpoint = ckpt.JSON(`{"v":4}`) },
		"with values":   func(r *ckpt.GraphPut) { r.Checkpoint = ckpt.JSON(`{"v":4,"id":"1","channel_values":{}}`) },
		"twice":         func(r *ckpt.GraphPut) { r.Values, r.Carry = jsonValues(channels{"a": `1`}), []string{"a"} },
		"metadata":      func(r *ckpt.GraphPut) { r.Metadata = ckpt.JSON(`[]`) },
		"agent":         func(r *ckpt.GraphPut) { r.Agent = "no agent" },
	} {
		if err := put(change); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := sqlite3(t, pathOf(s.Store), `SELECT count(*) FROM agents`); n != "0" {
		t.Errorf("refusals made %s agents", n)
	}
}
