package copy

import (
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// table says what is copied of a table of the schema. where is SQL that selects its rows: ?1 is the
// agent, ?2 a run for a table whose rows hang on a run.
type table struct {
	name    string
	kind    string // of its rows as lines of JSON; "" for none
	where   string
	order   string
	taken   bool // an import takes its rows with take; others have a way of their own, or are only checked
	columns []column
}

// of makes a table from the text of its columns: NAME:FORM, with the forms of the map forms.
func of(name, kind, where, order string, taken bool, columns string) *table {
	t := &table{name: name, kind: kind, where: where, order: order, taken: taken}
	for _, field := range strings.Fields(columns) {
		name, form, _ := strings.Cut(field, ":")
		f, known := forms[form]
		if !known {
			panic("the column " + name + " has the unknown form " + form)
		}
		t.columns = append(t.columns, column{name: name, form: f})
	}
	return t
}

const (
	ofAgent = `agent_id = ?1`
	ofRun   = `run_id = ?2`
)

// hangs says whether the rows hang on a run.
func (t *table) hangs() bool { return strings.Contains(t.where, "?2") }

// The tables of an agent, in the order in which they are copied: a row comes after the rows that it
// names.
var tables = []*table{
	agents, runs, checkpoints, ownerChanges, runSegments, segments, steps, operations, findings, prompts, events,
	graphThreads, graphCheckpoints, graphWrites, trees, treeFiles, contents, contentUses, checkpointTrees, acts, actTexts, places,
}

var (
	agents = of("agents", lineAgent, `id = ?1`, "id", false, `id:agent owner:owner name:agent_name created_at:time policy:policy policy_at:time
		recovery_keep_s:whole policy_own:policy pre_operation_keep_s:whole uid:uid`)
	runs = of("runs", lineRun, `id = ?2`, "id", false, `id:run agent_id:agent name:life_name status:short epoch:rising attempt:rising
		started_at:time updated_at:time ended_at:time life:rising last_seq:count head:ref workflow:text pid:natural process_start:short boot_id:short
		parent_run:run_name forked_from:ref segment_at:time interrupted_at:time accumulated_ms:count heartbeat_at:time heartbeat_timeout_ms:count
		progress_timeout_ms:count progress:number progress_at:time goal:text first_goal:text steps_ended:rising0 input_tokens:count
		output_tokens:count cost_usd:number stretch:rising stretch_seq:count stretch_from:count back_seq:count continuation_prompt:text
		external_session:text command:object labels:labels result:json error:text last_event:rising0 source:short partial:truth
		waiting:left removed:counted stored_bytes:counted uid:uid`)
	checkpoints = of("checkpoints", lineCheckpoint, ofRun, "slot", false, `id:own_id seq:natural kind:short parent:ref created_at:time size:count
		sha256:short content_type:content_type labels:labels metadata:metadata program:program step:short operation:short pinned:truth suspect:truth
		state_of:count slot:slot n:act run_id:run stored_size:stored pieces:segments body:state`)
	ownerChanges = of("owner_changes", "", ofAgent, "n", false, `agent_id:agent n:act uid:uid agent:agent_name from_owner:owner to_owner:owner`)
	runSegments  = of("run_segments", "", ofRun, "n", true, `run_id:run n:natural attempt:rising pid:natural began_at:time ended_at:time how:short`)
	segments     = of("segments", "", ofRun, "id", false, `id:segment run_id:run size:count data:state`)
	steps        = of("steps", lineStep, ofRun, "id", true, `key:key attempt:rising name:key status:short args:json result:json error:text
		started_at:time ended_at:time duration_ms:whole input_tokens:whole output_tokens:whole cost_usd:number progress:number after_seq:count
		stretch:count failures:rising0 sig:short res:short cause:short unparsable:truth turn:short outcome:short shape:short effect:short calls:rising0
		calls_in:count called_at:time id:row run_id:run`)
	operations = of("operations", lineOperation, ofRun, "id", true, `key:key attempt:rising name:key status:short checkpoint:ref started_at:time
		ended_at:time result:json error:text args:json idempotent:truth self_check:truth result_schema:schema resolution:short resolved_at:time
		resolved_by:short left_uncertain:truth spooled_at:time id:row run_id:run`)
	findings = of("findings", lineFinding, ofRun, "at, id", true, `id:own_id at:time rule:key severity:short message:text advice:text evidence:object
		checkpoint:ref about:short posted:truth since_seq:count until_seq:count closed_step:count earlier:json closed:short closed_at:time
		dismissed_at:time dismissed_by:short run_id:run`)
	prompts = of("prompts", linePrompt, ofRun, "at, id", true, `id:own_id at:time question:text reason:long checkpoint:ref memory_diff:json choice:short
		answered_at:time answered_by:short kind:short key:short operation:short attempt:natural choices:choices schema:schema expires_at:time
		asked_seq:count answered_seq:count answer:short data:json run_id:run`)
	events       = of("events", lineEvent, ofRun, "seq", true, `seq:natural at:time type:key payload:json run_id:run batch:left`)
	graphThreads = of("graph_threads", lineThread, ofRun, "run_id", true, `thread:thread ns:name run_id:run agent_id:agent`)
	graphChecks  = `slot IN (SELECT slot FROM checkpoints WHERE run_id = ?2)`
	// An import makes these from the states, and compares.
	graphCheckpoints = of("graph_checkpoints", "", graphChecks, "slot", false, `slot:slot run_id:run id:name parent:name channels:long`)
	graphWrites      = of("graph_writes", lineWrite, ofRun, "checkpoint, task, idx", true,
		`checkpoint:name task:name idx:whole path:name channel:name type:name size:count crc:count data:bytes run_id:run`)
	trees = of("trees", "", ofAgent+` AND id IN (SELECT value FROM json_each(?3))`, "id", false, `id:tree agent_id:agent sha256:hash base:tree root:text
		git_head:short captured_at:time complete:truth left_out:long files:count bytes:count until:left`)
	treeFiles = of("tree_files", "", `?1 AND tree_id IN (SELECT value FROM json_each(?3))`, "tree_id, path", false,
		`tree_id:tree path:text mode:short content_id:content target:text`)
	contents = of("contents", "", ofAgent+` AND id IN (SELECT value FROM json_each(?3))`, "id", false,
		`id:content agent_id:agent sha256:bytes size:count pieces:contents fresh:count data:bytes`)
	contentUses = of("content_uses", "", `?1 AND used_by IN (SELECT value FROM json_each(?3))`, "used, used_by", false, `used:content used_by:content`)
	// ?3 are the trees that are whole.
	checkpointTrees = of("checkpoint_trees", "", ofRun+` AND tree_id IN (SELECT value FROM json_each(?3)) AND EXISTS (SELECT 1 FROM checkpoints c
		WHERE c.run_id = x.run_id AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = x.seq AND c.n = x.n)`, "n, place", false,
		`n:act place:natural run_id:run seq:natural tree_id:tree gone:text`)
	// ?3 are the rows of the audit log that the copy has.
	acts = of("acts", "", `?1 AND n IN (SELECT value FROM json_each(?3))`, "n", false, `n:act at:whole who:short pid:whole action:short place:place outcome:short
		retries:whole kind:whole seq:whole parent:act size:whole stored:whole gone:act why:short subject:bytes sha256:bytes rest:bytes beside:bytes
		more:removed hash:chained`)
	actTexts = of("act_texts", "", `?1 AND n IN (SELECT value FROM json_each(?3))`, "n", false, `n:act salt:bytes subject:long reason:long detail:long`)
	places   = of("places", "", `?1 AND id IN (SELECT value FROM json_each(?3))`, "id", false, `id:place n:first owner:short agent:short run:short life:count`)
)

// notOfAgents are the tables whose rows an export does not have, and why.
var notOfAgents = map[string]string{
	"audit_archives":  "files of the whole database",
	"audit_links":     "the log of an export has no gaps",
	"content_leases":  "an export has only contents that a tree names",
	"content_secrets": "found before a tree names the content",
	"deliveries":      "what this host has told others",
	"event_batches":   "the order of an owner's events, of all agents",
	"idempotency":     "replies to requests to this daemon",
	"ids":             "replies to requests to this daemon",
	"notices":         "what this host tells others",
	"observed":        "made again from the run",
	"policies":        "the owner's, for all agents; the agent has what counts",
	"run_terms":       "made again from the runs",
	"scrub_owed":      "erasures of this database",
	"spans":           "so that none is taken twice here",
	"tokens":          "secrets of an owner for this host",
}

// The kinds of lines of rows as JSON.
const (
	lineBegin      = "ckptsidecar_export"
	lineAgent      = "agent"
	lineCheckpoint = "checkpoint"
	lineDamaged    = "damaged" // names a row that cannot be read, and says why
	lineRun        = "run"
	lineStep       = "step"
	lineOperation  = "operation"
	lineEvent      = "event"
	lineFinding    = "finding"
	linePrompt     = "prompt"
	lineThread     = "graph_thread"
	lineWrite      = "graph_write"
	lineEnd        = "end"
)

// children are the tables whose rows belong to a run and are lines of JSON, in their order.
var children = []*table{steps, operations, findings, prompts, events, graphThreads, graphWrites}

// tableOf is the table of a kind of line, nil if the line is no row of a run.
func tableOf(kind string) *table {
	for _, t := range children {
		if t.kind == kind {
			return t
		}
	}
	return nil
}

// query reads the rows.
func (t *table) query() string {
	return `SELECT ` + t.list("x.", all) + ` FROM ` + t.name + ` x WHERE ` + t.where + ` ORDER BY ` + t.order
}

// insert writes a row with all columns that pass.
func (t *table) insert(pass func(*column) bool) string {
	list := t.list("", pass)
	return `INSERT INTO ` + t.name + ` (` + list + `) VALUES (?` + strings.Repeat(", ?", strings.Count(list, ",")) + `)`
}

func all(*column) bool { return true }

// list lists the columns that pass, each behind a prefix.
func (t *table) list(prefix string, pass func(*column) bool) string {
	var names []string
	for i := range t.columns {
		if pass(&t.columns[i]) {
			names = append(names, prefix+t.columns[i].name)
		}
	}
	return strings.Join(names, ", ")
}

// place is the index of a column in a row.
func (t *table) place(name string) int {
	for i := range t.columns {
		if t.columns[i].name == name {
			return i
		}
	}
	panic(t.name + " has no column " + name)
}

// at is the value of a column in a row.
func (t *table) at(values []any, name string) any { return values[t.place(name)] }

func (t *table) whole(values []any, name string) int64 {
	n, _ := t.at(values, name).(int64)
	return n
}

func (t *table) text(values []any, name string) string {
	s, _ := t.at(values, name).(string)
	return s
}

func (t *table) ref(values []any, name string) ckpt.Ref { return ckpt.Ref(t.text(values, name)) }
