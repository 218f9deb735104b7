package archive

import (
	"errors"
	"hash/crc32"
	"math"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// The kinds of lines of an export, in the order in which they come for each agent: the
// agent, its checkpoints in the order in which they were saved, what has changed about them since,
// each run with the rows that belong to it, and then the files: contents and trees come before the
// lines that name them.
const (
	lineBegin      = "ckptsidecar_export"
	lineAgent      = "agent"
	lineCheckpoint = "checkpoint"
	lineMark       = "mark"    // what has changed about a checkpoint after its line was written
	lineDamaged    = "damaged" // names what cannot be read, and why
	lineRun        = "run"
	lineStep       = "step"
	lineOperation  = "operation"
	lineEvent      = "event"
	lineFinding    = "finding"
	linePrompt     = "prompt"
	lineThread     = "graph_thread"
	lineWrite      = "graph_write"
	lineContent    = "file_content"
	lineTree       = "file_tree"
	lineTrees      = "file_trees" // which trees a checkpoint names
	lineEnd        = "end"
)

func id(name string) column {
	return column{name: name, form: text, need: true, check: ckpt.CheckID, own: true}
}
func ref(name string) column  { return column{name: name, form: text, check: ckpt.CheckID, ref: true} }
func when(name string) column { return column{name: name, form: moment} }
func count(name string) column {
	return column{name: name, form: whole, need: true}
}

// rising is a number to which the daemon adds.
func rising(name string, least int64) column {
	return column{name: name, form: whole, need: true, least: least, rises: true}
}
func key(name string) column {
	return column{name: name, form: text, need: true, check: func(s string) error { return ckpt.CheckKey(name, s) }}
}

// word is a column that allows only some words.
func word[S ~string](name string, need bool, words ...S) column {
	c := column{name: name, form: text, need: need}
	for _, w := range words {
		c.words = append(c.words, string(w))
	}
	return c
}

// always makes a column that is never null.
func always(c column) column {
	c.need = true
	return c
}

// orElse makes a column that older exports do not have.
func orElse(c column, def any) column {
	c.def = def
	return c
}

// short is a text that the store makes itself, or that is a name.
func short(name string) column { return column{name: name, form: text, most: ckpt.MaxKey} }
func long(name string) column  { return column{name: name, form: text} }
func name(name string) column  { return column{name: name, form: text, most: ckpt.MaxGraphName} }
func anyJSON(name string) column {
	return column{name: name, form: value}
}
func measure(name string) column { return column{name: name, form: number} }

// checkpoints has the columns of checkpoints except the state. internal/db/ledger reads and writes
// them, not the statements of this table.
var checkpoints = &table{kind: lineCheckpoint, columns: []column{
	id("id"),
	{name: "seq", form: whole, need: true, least: 1},
	word("kind", true, ckpt.Kinds...),
	ref("parent"), always(when("created_at")), count("size"),
	{name: "sha256", form: text, need: true, most: 64},
	{name: "content_type", form: text, check: ckpt.CheckContentType},
	{name: "labels", form: labels},
	{name: "metadata", form: object, most: ckpt.MaxMetadata},
	{name: "program", form: value, most: math.MaxInt}, // as large as the body of its save
	short("step"), short("operation"),
	{name: "pinned", form: truth}, {name: "suspect", form: truth},
	{name: "state_of", form: whole}, // 0 for a checkpoint of another run, from which this one was forked
}}

// marks has what can change about a checkpoint after it was saved. A checkpoint with gone was
// removed while the export was written.
var marks = &table{kind: lineMark, columns: []column{
	id("id"), {name: "gone", form: truth}, {name: "labels", form: labels}, {name: "pinned", form: truth}, {name: "suspect", form: truth},
}}

// runs has the columns of runs, except those that count what is stored.
var runs = (&table{kind: lineRun, insert: `INSERT INTO runs`, columns: []column{
	word("status", true, ckpt.RunRunning, ckpt.RunSuspended, ckpt.RunAwaitingContinuation, ckpt.RunInterrupted,
		ckpt.RunTimedOut, ckpt.RunCompleted, ckpt.RunFailed),
	rising("epoch", 1), rising("attempt", 1),
	always(when("started_at")), always(when("updated_at")), when("ended_at"),
	rising("life", 1), count("last_seq"), ref("head"),
	long("workflow"), {name: "pid", form: whole, least: 1}, short("process_start"), short("boot_id"),
	{name: "parent_run", form: text, check: ckpt.CheckRunName}, ref("forked_from"),
	when("segment_at"), when("interrupted_at"), count("accumulated_ms"), when("heartbeat_at"),
	count("heartbeat_timeout_ms"), count("progress_timeout_ms"), measure("progress"), when("progress_at"),
	long("goal"), long("first_goal"), rising("steps_ended", 0), count("input_tokens"), count("output_tokens"), always(measure("cost_usd")),
	rising("stretch", 1), count("stretch_seq"), count("stretch_from"), {name: "back_seq", form: whole},
	long("continuation_prompt"), long("external_session"), {name: "command", form: object}, {name: "labels", form: labels, need: true},
	anyJSON("result"), long("error"), rising("last_event", 0), word("source", false, ckpt.SourceOTLP),
}}).prepareRuns()

// children are the rows that belong to a run, in the order in which they are written.
var children = []*table{
	(&table{kind: lineStep, insert: `INSERT INTO steps`, order: "id", columns: []column{
		key("key"), rising("attempt", 1), key("name"), word("status", true, ckpt.StepStatuses...),
		anyJSON("args"), anyJSON("result"), long("error"), always(when("started_at")), when("ended_at"),
		{name: "duration_ms", form: whole, least: math.MinInt64}, {name: "input_tokens", form: whole, least: math.MinInt64},
		{name: "output_tokens", form: whole, least: math.MinInt64}, measure("cost_usd"), measure("progress"),
		count("after_seq"), count("stretch"), rising("failures", 0), short("sig"), short("res"), short("cause"),
		{name: "unparsable", form: truth, need: true}, {name: "turn", form: text, most: ckpt.MaxTurn},
		word("outcome", false, ckpt.StepNegative), short("shape"), short("effect"),
		rising("calls", 0), {name: "calls_in", form: whole}, when("called_at"),
	}}).prepare(),
	(&table{kind: lineOperation, insert: `INSERT INTO operations`, order: "id", columns: []column{
		key("key"), rising("attempt", 1), key("name"), word("status", true, ckpt.OperationStatuses...),
		ref("checkpoint"), always(when("started_at")), when("ended_at"), anyJSON("result"), long("error"), anyJSON("args"),
		{name: "idempotent", form: truth, need: true}, {name: "self_check", form: truth, need: true},
		{name: "result_schema", form: object, most: ckpt.MaxSchema},
		word("resolution", false, ckpt.ChoiceItDid, ckpt.ChoiceItDidNot, ckpt.ChoiceRepeat), when("resolved_at"), short("resolved_by"),
		{name: "left_uncertain", form: truth, need: true}, when("spooled_at"),
	}}).prepare(),
	(&table{kind: lineFinding, insert: `INSERT INTO findings`, order: "id", columns: []column{
		id("id"), always(when("at")), key("rule"), word("severity", true, ckpt.SeverityInfo, ckpt.SeverityWarn,
			ckpt.SeverityCritical), always(long("message")), long("advice"),
		{name: "evidence", form: object, need: true}, ref("checkpoint"), word("about", true, ckpt.AboutRun, ckpt.AboutWork, ckpt.AboutState),
		{name: "posted", form: truth, need: true}, {name: "since_seq", form: whole}, {name: "until_seq", form: whole},
		{name: "closed_step", form: whole}, always(anyJSON("earlier")),
		word("closed", false, ckpt.ClosedDismissed, ckpt.ClosedRecovered, ckpt.ClosedResumed, ckpt.ClosedRestored, ckpt.ClosedBegun),
		when("closed_at"), when("dismissed_at"), short("dismissed_by"),
	}}).prepare(),
	(&table{kind: linePrompt, insert: `INSERT INTO prompts`, order: "id", columns: []column{
		id("id"), always(when("at")), always(long("question")),
		{name: "reason", form: text, need: true, most: ckpt.MaxValue}, ref("checkpoint"), anyJSON("memory_diff"),
		word("choice", false, ckpt.ChoiceResume, ckpt.ChoiceReinitialize, ckpt.ChoiceAbandon, ckpt.ChoiceItDid, ckpt.ChoiceItDidNot,
			ckpt.ChoiceRepeat), when("answered_at"), short("answered_by"),
		orElse(word("kind", true, ckpt.PromptDecision, ckpt.PromptQuestion, ckpt.PromptOperation), string(ckpt.PromptDecision)), short("key"),
		short("operation"), {name: "attempt", form: whole, least: 1},
		{name: "choices", form: value, check: ckpt.CheckChoices}, {name: "schema", form: object, most: ckpt.MaxSchema}, when("expires_at"),
		{name: "asked_seq", form: whole}, {name: "answered_seq", form: whole}, {name: "answer", form: text, most: ckpt.MaxChoice}, anyJSON("data"),
	}}).prepare(),
	(&table{kind: lineEvent, insert: `INSERT INTO events`, order: "seq", columns: []column{
		{name: "seq", form: whole, need: true, least: 1}, always(when("at")), key("type"), {name: "payload", form: value, need: true},
	}}).prepare(),
	(&table{kind: lineThread, insert: `INSERT INTO graph_threads`, order: "run_id", columns: []column{
		{name: "thread", form: text, need: true, check: ckpt.CheckGraphThread}, always(name("ns")),
	}}).prepare(),
	writes,
}

// writes are the writes of LangGraph's tasks. data is the written value, not its stored form.
var writes = &table{
	kind: lineWrite, columns: []column{
		always(name("checkpoint")), always(name("task")), {name: "idx", form: whole, need: true, least: -1 << 31},
		always(name("path")), always(name("channel")), always(name("type")),
		{name: "data", form: bytea, need: true},
	},
	query:  `SELECT checkpoint, task, idx, path, channel, type, data, size, crc FROM graph_writes WHERE run_id = ? ORDER BY checkpoint, task, idx`,
	insert: `INSERT INTO graph_writes (run_id, checkpoint, task, idx, path, channel, type, data, size, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	read:   inflated,
	write:  deflated,
}

// inflated converts a stored write to the written value.
func inflated(row []any) ([]any, error) {
	data, _ := row[6].([]byte)
	size, _ := row[7].(int64)
	crc, _ := row[8].(int64)
	data, err := blob.Inflate(data, size)
	if err != nil || int64(crc32.Checksum(data, ledger.Castagnoli)) != crc {
		return row[:6], errors.New("does not match its checksum")
	}
	return append(row[:6:6], data), nil
}

// deflated converts a write to its stored form.
func deflated(row []any) []any {
	data, _ := row[6].([]byte)
	stored := data
	if len(data) >= deflateFrom {
		stored = blob.Deflate(data)
	}
	return append(row[:6:6], stored, int64(len(data)), int64(crc32.Checksum(data, ledger.Castagnoli)))
}

// deflateFrom is the size from which compressing a write may be worthwhile.
const deflateFrom = 256

// tableOf is the table of a kind of line, nil if the line is no row of a run.
func tableOf(kind string) *table {
	for _, t := range children {
		if t.kind == kind {
			return t
		}
	}
	return nil
}
