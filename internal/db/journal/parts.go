package journal

import (
	"database/sql"

	ckpt "github.com/ckptsidecar/ckptsidecar"

	"encoding/json"
	"strconv"

	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
)

// part says which part of a run must be read again because of a row of the log.
type part int

const (
	none     part = iota // only the row of the log
	little               // the run itself and its new checkpoints
	step                 // the same, and the step that the row names
	operate              // the same as little, and the operation that the row names
	happened             // the same as little, and the events that the row names
	whole                // the whole run
	full                 // the whole run, with all checkpoints
)

// parts gives the part for each action. For an action that is not here, the whole run is read,
// which is always right and costs the most.
var parts = map[string]part{
	"save": little, "remove": little, "prune": little,
	"begin_step": step, "finish_step": step,
	"begin_operation": operate, "end_operation": operate, "succeed_operation": operate, "fail_operation": operate,
	"append_events": happened,
	"import_run":    full,
	"receive_agent": full, // the engine has its runs under the former owner's name, or has dropped them
	"give_agent":    none,
	"start":         none, "verify": none, "export": none, "archive_audit": none, "restore_backup": none, "put_token": none, "revoke_token": none,
	"set_principals": none, "engine_went_back": none, "clean_fleet": none, "put_contents": none, "put_tree": none, "notify_test": none,
}

func partOf(action string) part {
	if p, known := parts[action]; known {
		return p
	}
	return whole
}

// touched says what must be read of a run.
type touched struct {
	whole, full bool
	some        map[string][]string // keys by kind
	removed     bool                // checkpoints were removed, and with them the writes of LangGraph's tasks
}

// touch notes a row of the log.
func (t *touched) touch(row *logRow) {
	t.removed = t.removed || row.action != "save" && partOf(row.action) == little
	switch partOf(row.action) {
	case full:
		t.whole, t.full = true, true
	case whole:
		t.whole = true
	case step:
		t.add(copy.KindStep, row.subject.String)
	case operate:
		t.add(copy.KindOperation, row.subject.String)
	case happened:
		t.events(row.detail)
	}
}

func (t *touched) add(kind, key string) {
	if key == "" { // its text was erased, or it has none: the key is unknown
		t.whole = true
		return
	}
	t.some[kind] = append(t.some[kind], key)
}

func (t *touched) events(detail string) {
	var d struct{ First, Last int64 }
	if json.Unmarshal([]byte(detail), &d) != nil || d.First == 0 || d.Last-d.First > 10000 {
		t.whole = true
		return
	}
	for seq := d.First; seq <= d.Last; seq++ {
		t.some[copy.KindEvent] = append(t.some[copy.KindEvent], strconv.FormatInt(seq, 10))
	}
}

// logRow is a row of the audit log.
type logRow struct {
	n                                  int64
	at                                 ckpt.Time
	who, action, outcome, detail, hash string
	owner, agent, run, subject, reason sql.NullString
	pid, retries                       int
}
