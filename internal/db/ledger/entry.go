package ledger

import (
	"os"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// AuditEntry is the part of an audit row that its caller gives. The transaction adds the rest:
// time, number and hash. Reason, Detail and a Subject that is no UUID are stored beside the log,
// where an erasure can remove them.
type AuditEntry struct {
	Who     string
	PID     int
	Action  string
	Owner   string
	Agent   string
	Run     string
	Life    int64 // of the run; 0: Audit looks it up
	Subject string
	Outcome string
	Reason  string
	Detail  map[string]any
	Save    *SaveFacts // of a save

	into int64 // the row of a save in this transaction that removals are noted in; 0 if they get their own rows
	gone int64 // the row of the save whose checkpoint is removed
	why  string
}

// Into makes removals appear in the row of a save of the same transaction.
func (e AuditEntry) Into(n int64) AuditEntry {
	e.into = n
	return e
}

// ChainHead is the last row of the audit log.
type ChainHead struct {
	N    int64
	Hash string
}

// Daemon is who acts if no user asked for it: retention, maintenance, the start.
const Daemon = "daemon"

// OutcomeDone is the outcome of an audit row that reports success; any other
// outcome is an error code.
const OutcomeDone = "done"

// Entry begins the audit entry of an action of a caller on an agent.
func Entry(sc ckpt.Scope, action, agent string) AuditEntry {
	e := AuditEntry{Who: sc.Caller.Owner, PID: sc.PID, Action: action, Owner: sc.Whose(), Agent: agent, Outcome: OutcomeDone}
	e.Reason = sc.Reason
	if !sc.Spooled.IsZero() {
		e.Reason = "spooled by the client at " + sc.Spooled.String()
	}
	return e
}

// States adds the status and the epoch of a run to the entry of a change to one of them, so that verify can compare them.
func (e *AuditEntry) States(status ckpt.RunStatus, epoch int64) {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	e.Detail["run_status"], e.Detail["run_epoch"] = status, epoch
}

// ChangeEntry begins the audit entry of a change by id.
func ChangeEntry(sc ckpt.Scope, action, id string) AuditEntry {
	e := Entry(sc, action, "")
	e.Subject = id
	return e
}

// DaemonEntry begins the audit entry of an action of the daemon itself.
func DaemonEntry(agent *AgentRow, action string) AuditEntry {
	return AuditEntry{Who: Daemon, PID: os.Getpid(), Action: action, Owner: agent.Owner, Agent: agent.Name, Outcome: OutcomeDone}
}

func RunName(name string) string {
	if name == "" {
		return ckpt.MainRun
	}
	return name
}
