package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

func TestNamesAreMadeValid(t *testing.T) {
	long := strings.Repeat("x", 300)
	for original, want := range map[string]string{
		"coder": "coder", "a b/c": "a-b-c", "  ..a  b  ": "a-b", "über.flow": "ber.flow", "a---b": "a---b", "a-/b!": "a-b",
		"日本": "agent-", "": "agent-", long: long[:119] + "-",
	} {
		got := AgentName(original)
		if err := ckpt.CheckAgentName(got); err != nil || !strings.HasPrefix(got, want) || len(got) > len(want)+8 {
			t.Errorf("%.20q: %q, want %q, %v", original, got, want, err)
		}
	}
	for original, want := range map[string]string{"r:1@x+2": "r:1@x+2", "a b": "a-b-", "日本": "run-", "": "run-", long: long[:246] + "-"} {
		got := RunName(original)
		if err := ckpt.CheckRunName(got); err != nil || !strings.HasPrefix(got, want) || len(got) > len(want)+8 {
			t.Errorf("%.20q: %q, want %q, %v", original, got, want, err)
		}
	}
	if RunName("a b") == RunName("a/b") {
		t.Error("two runs became one")
	}
}

func TestTimesAreRead(t *testing.T) {
	want := "2026-06-30T08:15:30.250Z"
	for _, text := range []string{
		`"2026-06-30T08:15:30.25Z"`, `"2026-06-30T10:15:30.250999+02:00"`, `"2026-06-30T08:15:30.250"`, `"2026-06-30 08:15:30.25"`,
		`"2026-06-30 08:15:30.25+00:00"`, `1782807330250`, `1782807330.25`, `"1782807330250"`, `1.78280733025e12`,
	} {
		if at, ok := timeOf([]byte(text)); !ok || ckpt.At(at).String() != want {
			t.Errorf("%s: %v, %v", text, at, ok)
		}
	}
	for _, text := range []string{`"soon"`, `true`, `-1`, `1e300`, `"NaN"`, `"Inf"`, `null`, ``, `{}`} {
		if at, ok := timeOf([]byte(text)); ok {
			t.Errorf("%s: %v", text, at)
		}
	}
}

func TestExecutedCodeBecomesAnOffset(t *testing.T) {
	fence := "```"
	for name, test := range map[string]struct {
		response, executed string
		remaining          string // "-" means no program
	}{
		"nothing has run":          {"a()\nb()\n", "", "a()\nb()\n"},
		"a line":                   {"a()\nb()\n", "a()\n", "b()\n"},
		"without its end":          {"a()\nb()\n", "a()", "\nb()\n"},
		"all":                      {"a()\nb()", "a()\nb()", ""},
		"the same statement":       {"a()\na()\na()\n", "a()\na()\n", "a()\n"},
		"a comment behind":         {"a() # one\nb()\n", "a()", " # one\nb()\n"},
		"a semicolon behind":       {"a(); b()\n", "a()", "b()\n"},
		"half a number":            {"x = 10\n", "x = 1", "-"},
		"half an expression":       {"x = 1 + 1\n", "x = 1", "-"},
		"half a call":              {"a()[0]\n", "a()", "-"},
		"other quotes":             {"a('x')\n", "a(\"x\")", "-"},
		"in the middle":            {"a()\nb()\n", "b()", "-"},
		"a block":                  {"Look:\n" + fence + "python\na()\nb()\n" + fence + "\nthat is it", "a()\n", "b()\n"},
		"two blocks":               {fence + "\nx\n" + fence + "\n" + fence + "py\na()\nb()\n" + fence, "a()", "-"},
		"over two blocks":          {fence + "\na()\n" + fence + "\nand\n" + fence + "\nb()\nc()\n" + fence, "a()\nb()\n", "-"},
		"a block that is not shut": {fence + "\na()\nb()", "a()\n", "b()"},
		"backquotes in the code":   {"s = '''\n" + fence + "\n" + fence + "\n'''\nb()\n", "s = '''\n" + fence + "\n" + fence + "\n'''\n", "b()\n"},
		"windows":                  {"a()\r\nb()\r\n", "a()", "\r\nb()\r\n"},
		"not ASCII":                {"say('grüß')\nb()\n", "say('grüß')\n", "b()\n"},
	} {
		metadata, _ := objectOf(must(json.Marshal(map[string]string{"llm_response": test.response, "executed_code": test.executed})))
		p, why := programOf(metadata)
		switch {
		case p == nil:
			if test.remaining != "-" || why == "" {
				t.Errorf("%s: no program: %s", name, why)
			}
		case p.Check() != nil || p.Source[p.Executed:] != test.remaining:
			t.Errorf("%s: %d of %q, left %q", name, p.Executed, p.Source, p.Source[p.Executed:])
		}
	}
	large, _ := objectOf(must(json.Marshal(map[string]string{"llm_response": strings.Repeat("a()\n", 60_000)})))
	if p, why := programOf(large); p != nil || !strings.Contains(why, "too long") {
		t.Errorf("%v, %s", p != nil, why)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func snapshot(change map[string]any) []byte {
	s := map[string]any{
		"version": "1", "timestamp": "2026-06-30T08:00:00Z", "runId": "r", "workflowId": "w", "status": "suspended", "stepResults": map[string]any{},
		"executionPath": []any{}, "suspendedPaths": nil, "events": []any{}, "executionGraph": nil, "result": nil, "error": nil, "logs": nil, "executionContext": nil,
	}
	for k, v := range change {
		if v == "gone" {
			delete(s, k)
		} else {
			s[k] = v
		}
	}
	return must(json.Marshal(s))
}

func TestInvalidFilesAreRefusedWithTheirPlace(t *testing.T) {
	for want, data := range map[string]string{
		`at "/runId": it is a number, and must be string`:              string(snapshot(map[string]any{"runId": 7})),
		`at top level: workflowId is missing`:                          string(snapshot(map[string]any{"workflowId": "gone"})),
		`at "/status": it has fewer than 1 character`:                  string(snapshot(map[string]any{"status": ""})),
		`at "/stepResults": it is a null, and must be object or array`: string(snapshot(map[string]any{"stepResults": nil})),
		`at "/timestamp": it is not a time`:                            string(snapshot(map[string]any{"timestamp": "soon"})),
		`at "/error": it is a boolean`:                                 string(snapshot(map[string]any{"error": true})),
		`it is not a JSON object`:                                      `7`,
		`JSON line 2, column 2 (byte 3), at top level`:                 "{\n x",
		`duplicate key "runId"`:                                        `{"runId":"a","runId":"b"}`,
		`at top level: version is missing`:                             `{}`,
	} {
		r := Snapshots([]File{{"f.json", []byte(data)}}, options)
		if len(r.Plans) != 0 || len(r.Problems) != 1 || !r.Problems[0].Refused || !strings.Contains(r.Problems[0].String(), "f.json: not a workflow snapshot: ") || !strings.Contains(r.Problems[0].Message, want) {
			t.Errorf("want %q, got %v", want, r.Problems)
		}
	}
	statement := `{"checkpoint_id":"c","namespace":NS,"execution_state":{"variables":VARS},"metadata":{"counter":1,"execution_id":"e"}}`
	for want, replace := range map[string][2]string{
		`at "/execution_state/variables": it is a number`:  {`"n"`, `7`},
		`it does not name an agent: give one with --agent`: {`{"__name__":"__main__"}`, `{}`},
	} {
		data := strings.NewReplacer("NS", replace[0], "VARS", replace[1]).Replace(statement)
		r := Statements([]File{{"f.json", []byte(data)}}, options)
		if len(r.Plans) != 0 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, want) {
			t.Errorf("want %q, got %v", want, r.Problems)
		}
	}
}

// TestSnapshotsAreChecked: the schema has exactly the fields of the contract,
// and it accepts the examples.
func TestSnapshotsAreChecked(t *testing.T) {
	if err := jsontext.Check(ckpt.SnapshotSchema); err != nil {
		t.Fatal(err)
	}
	top, _ := objectOf(ckpt.SnapshotSchema)
	want := strings.Fields("version timestamp runId workflowId status stepResults executionPath suspendedPaths events executionGraph result error logs executionContext")
	if diff := cmp.Diff(want, top.object("properties").keys); diff != "" {
		t.Error(diff)
	}
	for name := range snapshotSchema.Properties {
		if !slices.Contains(want, name) {
			t.Errorf("%s is no field of the contract", name)
		}
	}
	for _, f := range filesOf(t, "snapshots/*.json") {
		if err := snapshotSchema.check("", f.Data); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

// TestRecordsOfSnapshots reads all forms in which a snapshot manager stores and
// exchanges its snapshots.
func TestRecordsOfSnapshots(t *testing.T) {
	one := string(snapshot(map[string]any{"runId": "r1"}))
	two := string(snapshot(map[string]any{"runId": "r2"}))
	for name, text := range map[string]string{
		"a record":          `{"runId":"r1","workflowId":"w","snapshot":` + quoted(one) + `}`,
		"a record, no text": `{"runId":"r1","workflowId":"w","snapshot":` + one + `}`,
		"a batch":           `[{"runId":"r1","data":` + quoted(one) + `},{"runId":"r2","data":` + quoted(two) + `}]`,
		"a list":            `[` + one + `,{"runId":"r2","snapshot":` + two + `}]`,
	} {
		r := Snapshots([]File{{"f.json", []byte(text)}}, options)
		if len(r.Problems) != 0 || len(r.Plans) != 1+strings.Count(text, `"r2"`)/max(1, strings.Count(text, `"r2"`)) || string(r.Plans[0].Saves[0].State) != one {
			t.Errorf("%s: %d plans, %v", name, len(r.Plans), r.Problems)
		}
	}
	for text, want := range map[string]string{
		`{"runId":"other","workflowId":"w","snapshot":` + one + `}`: "other",
		`[{"runId":"r1","data":"{"}]`:                               "f.json[0]",
		`[{"runId":"r1"}]`:                                          "f.json[0]",
		`[7]`:                                                       "f.json[0]",
		`[]`:                                                        "no snapshot",
	} {
		r := Snapshots([]File{{"f.json", []byte(text)}}, options)
		if len(r.Plans) != 0 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].String(), want) {
			t.Errorf("%s: %v", text, r.Problems)
		}
	}
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestOlderFoldersOfLoops reads the folders of earlier versions, and loops that
// have saved nothing yet.
func TestOlderFoldersOfLoops(t *testing.T) {
	state := &fstest.MapFile{Data: []byte(`{"loop_name":"l","current_state":"x","status":"completed","updated_at":"2026-06-30T09:00:00Z"}`)}
	dir := fstest.MapFS{
		".history/l/2026-06-30T080000/state.json": state, ".history/l/2026-06-30T080000/events.jsonl": {Data: []byte(`{"event":"e","ts":"2026-06-30T08:00:01Z"}` + "\n")},
		".history/l/2026-06-30T090000/state.json": state, ".history/2026-07-01T080000-l/state.json": state, ".history/empty/x": {},
		".running/waiting.pid":      {Data: []byte("12")},
		".running/begun.state.json": {Data: []byte(`{"loop_name":"begun","status":"starting","pid":99}`)},
	}
	loops, problems := FindLoops(dir)
	if len(problems) != 2 || problems[0].File != ".history/empty" || problems[1].Refused || !strings.Contains(problems[1].Message, "only started") {
		t.Errorf("%v", problems)
	}
	var runs []string
	for _, l := range loops {
		r := ReadLoop(dir, l, options)
		if len(r.Plans) != 1 {
			t.Fatalf("%s: %v", l.State, r.Problems)
		}
		runs = append(runs, fmt.Sprintf("%s %s %d", r.Plans[0].Run, r.Plans[0].End.Status, len(r.Plans[0].Events)))
	}
	want := []string{"2026-07-01T080000-l completed 0", "2026-06-30T080000 completed 1", "2026-06-30T090000 completed 0", "begun interrupted 0"}
	if diff := cmp.Diff(want, runs); diff != "" {
		t.Error(diff)
	}
}

func TestStatuses(t *testing.T) {
	for status, want := range map[string]ckpt.RunStatus{
		"success": ckpt.RunCompleted, "Completed": ckpt.RunCompleted, "failed": ckpt.RunFailed, "canceled": ckpt.RunFailed, "suspended": ckpt.RunSuspended,
		"waiting": ckpt.RunSuspended, "running": ckpt.RunInterrupted, "pending": ckpt.RunInterrupted, "of its own": ckpt.RunInterrupted,
	} {
		p := Snapshots([]File{{"f", snapshot(map[string]any{"status": status})}}, options).Plans[0]
		if p.End.Status != want || (want == ckpt.RunFailed) != (p.End.Error != "") {
			t.Errorf("%s: %s, error %q", status, p.End.Status, p.End.Error)
		}
	}
	for status, want := range map[string]ckpt.RunStatus{
		"completed": ckpt.RunCompleted, "failed": ckpt.RunFailed, "interrupted": ckpt.RunInterrupted, "awaiting_continuation": ckpt.RunAwaitingContinuation,
		"timed_out": ckpt.RunTimedOut, "running": ckpt.RunInterrupted, "starting": ckpt.RunInterrupted, "?": ckpt.RunInterrupted,
	} {
		top, _ := objectOf([]byte(`{"status":"` + status + `"}`))
		if got, _ := loopStatus(top); got != want {
			t.Errorf("%s: %s", status, got)
		}
	}
}

func TestTwoRunsNeverBecomeOne(t *testing.T) {
	r := Snapshots([]File{
		{"one", snapshot(nil)}, {"same", snapshot(nil)},
		{"other-workflow", snapshot(map[string]any{"workflowId": "w2"})},
	}, Options{Agent: "a"})
	if len(r.Plans) != 1 || len(r.Plans[0].Saves) != 1 || len(r.Plans[0].Notes) == 0 {
		t.Errorf("%+v", r.Plans)
	}
	if len(r.Problems) != 1 || r.Problems[0].File != "other-workflow" || !strings.Contains(r.Problems[0].Message, `"w2"`) {
		t.Errorf("%v", r.Problems)
	}
}

func TestAnAliveLoopIsNotImported(t *testing.T) {
	o := options
	o.Alive = func(pid int) bool { return pid == 2147480000 }
	r := allLoops(t, o)
	refused := 0
	for _, p := range r.Problems {
		if p.Refused {
			refused++
			if !strings.Contains(p.String(), "issue-fixer.state.json: process 2147480000 still runs it") {
				t.Error(p)
			}
		}
	}
	if refused != 1 || len(r.Plans) != 3 {
		t.Errorf("%d refused, %d plans", refused, len(r.Plans))
	}
}

func TestFoldersOfLoops(t *testing.T) {
	if _, problems := FindLoops(fstest.MapFS{"x": {}}); len(problems) != 1 || !strings.Contains(problems[0].Message, "neither") {
		t.Error(problems)
	}
	state := []byte(`{"loop_name":"l","current_state":"s","status":"interrupted"}`)
	dir := fstest.MapFS{
		".running/l.state.json":        {Data: state},
		".running/orphan.events.jsonl": {Data: []byte("{}\n")},
		".running/bad.state.json":      {Data: []byte(`{"loop_name":`)},
		".history/empty/readme":        {},
		".history/r-l/state.json":      {Data: state},
		".history/r-l/events.jsonl":    {Data: []byte("{\"type\":\"a\"}\r\n[1]\nnull\n{\"type\":\"b\\n\"}")},
		".history/file":                {},
	}
	loops, problems := FindLoops(dir)
	var names []string
	var events []ckpt.NewEvent
	for _, l := range loops {
		r := ReadLoop(dir, l, options)
		problems = append(problems, r.Problems...)
		for _, p := range r.Plans {
			names = append(names, p.Run)
			events = append(events, p.Events...)
		}
	}
	if diff := cmp.Diff([]string{"r-l", "l"}, names); diff != "" {
		t.Error(diff)
	}
	if len(events) != 2 || events[0].Type != "a" || !strings.HasPrefix(events[1].Type, "b -") || string(events[0].Payload) != `{"type":"a"}` {
		t.Errorf("%v", events)
	}
	var told []string
	for _, p := range problems {
		told = append(told, fmt.Sprintf("%v %v", p, p.Refused))
	}
	want := []string{
		".history/empty: it has no state.json true",
		".running/orphan.events.jsonl: it has events of a loop, but no state of it true",
		".history/r-l/events.jsonl:2: skipped: it is not a JSON object false",
		".history/r-l/events.jsonl:3: skipped: it is not a JSON object false",
		`.running/bad.state.json: not the state of a loop: JSON line 1, column 14 (byte 13), at "/loop_name": unexpected end true`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

func TestManyDamagedLinesAreCounted(t *testing.T) {
	dir := fstest.MapFS{"e": {Data: []byte(strings.Repeat("{\n", 100))}}
	events, damaged, err := readEvents(dir, "e")
	if err != nil || len(events) != 0 || len(damaged) != maxDamaged+1 || !strings.Contains(damaged[maxDamaged].String(), "80 damaged lines more") {
		t.Errorf("%v, %v", damaged, err)
	}
}

func TestLinksDoNotLeadOut(t *testing.T) {
	base := t.TempDir()
	for _, folder := range []string{"out", "loops/.running", "loops/.history"} {
		if err := os.MkdirAll(filepath.Join(base, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	state := []byte(`{"loop_name":"l","current_state":"s","status":"interrupted"}`)
	if err := os.WriteFile(filepath.Join(base, "out", "state.json"), state, 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{".running/l.state.json": "../../out/state.json", ".history/r-l": "../../out", ".running/abs.state.json": filepath.Join(base, "out", "state.json")} {
		if err := os.Symlink(to, filepath.Join(base, "loops", link)); err != nil {
			t.Skip(err)
		}
	}
	root, err := os.OpenRoot(filepath.Join(base, "loops"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	loops, problems := FindLoops(root.FS())
	for _, l := range loops {
		r := ReadLoop(root.FS(), l, options)
		problems = append(problems, r.Problems...)
		if len(r.Plans) > 0 {
			t.Errorf("%s was read", l.State)
		}
	}
	if len(problems) != 3 {
		t.Errorf("%v", problems)
	}
}

func TestWhatIsTooLargeIsLeftOutOrRefused(t *testing.T) {
	large := strings.Repeat("x", ckpt.MaxValue+1)
	p := Snapshots([]File{{"f", snapshot(map[string]any{
		"stepResults": map[string]any{"s": map[string]any{"status": "success", "output": large}}, "result": large,
		"events": []any{large, "small"}, "error": large, "status": "failed",
	})}}, options).Plans[0]
	if p.Steps[0].Result != nil || p.End.Result != nil || len(p.Events) != 1 || len(p.End.Error) != ckpt.MaxText || len(p.Notes) != 4 {
		t.Errorf("%v", p.Notes)
	}
	dir := fstest.MapFS{"s": {Data: []byte("123456")}}
	if _, err := readFile(dir, "s", 5); err == nil {
		t.Error("a file that is too large was read")
	}
}

// TestExportsKeepTimes: the export has the times of the files, to the
// millisecond, and the newest state includes the steps that had ended.
func TestExportsKeepTimes(t *testing.T) {
	p := Snapshots([]File{{"f", snapshot(map[string]any{"timestamp": "2026-06-30T08:15:30.250Z", "status": "running", "stepResults": map[string]any{
		"a": map[string]any{"status": "success", "output": 1, "startedAt": 1782807300000, "endedAt": 1782807301250},
		"b": map[string]any{"status": "running", "startedAt": 1782807302000},
	}, "events": []any{map[string]any{"type": "e", "timestamp": "2026-06-30T08:00:00.001Z"}}})}}, options).Plans[0]
	var out bytes.Buffer
	if err := p.Export(&out, "uid:1", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"seq":1,"kind":"routine","created_at":"2026-06-30T08:15:30.250Z"`, `"status":"interrupted","epoch":1,"attempt":1,"started_at":"2026-06-30T08:15:30.250Z"`,
		`"interrupted_at":"2026-06-30T08:15:30.250Z"`, `"started_at":"2026-06-30T08:15:00.000Z","ended_at":"2026-06-30T08:15:01.250Z","duration_ms":1250,"after_seq":0`,
		`"key":"b","attempt":1,"name":"b","status":"interrupted","started_at":"2026-06-30T08:15:02.000Z","ended_at":"2026-06-30T08:15:30.250Z","after_seq":1`,
		`"seq":1,"at":"2026-06-30T08:00:00.001Z","type":"e"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in the export:\n%s", want, &out)
		}
	}
	loop := fstest.MapFS{"s": {Data: []byte(`{"loop_name":"l","current_state":"x","status":"timed_out","accumulated_ms":1234.6,"started_at":"2026-06-30T08:00:00Z","updated_at":"2026-06-30T09:00:00Z"}`)}}
	p = ReadLoop(loop, Loop{State: "s", folder: "r"}, options).Plans[0]
	out.Reset()
	if err := p.Export(&out, "uid:1", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"status":"timed_out"`, `"accumulated_ms":1235`, `"started_at":"2026-06-30T08:00:00.000Z","updated_at":"2026-06-30T09:00:00.000Z"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in the export:\n%s", want, &out)
		}
	}
}

func TestStepsOccurringTwiceHaveKeysOfTheirOwn(t *testing.T) {
	p := Snapshots([]File{{"f", snapshot(map[string]any{"stepResults": []any{
		map[string]any{"id": "a", "status": "success"}, map[string]any{"id": "a", "status": "success"},
		map[string]any{"id": "a#2", "status": "success"}, 7, map[string]any{"id": "b", "status": "running"},
	}})}}, options).Plans[0]
	var keys []string
	for _, s := range p.Steps {
		keys = append(keys, s.Key+" "+string(s.Status))
	}
	if diff := cmp.Diff([]string{"a succeeded", "a#2 succeeded", "a#2#2 succeeded", "step-4 succeeded", "b started"}, keys); diff != "" {
		t.Error(diff)
	}
}

func TestLoopsThatRunAreNamedByTheirFiles(t *testing.T) {
	at := time.Date(2026, 6, 30, 1, 2, 3, 0, time.UTC)
	for want, l := range map[string]Loop{"r-x": {folder: "r-x"}, "x-2": {instance: "x-2"}, "2026-06-30T010203-x": {instance: "x"}} {
		if got := l.name("x", at); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
