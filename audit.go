package ckptsidecar

// AuditRow is one row of the append-only audit log. Hash is the SHA-256 of
// Prev and every other field; internal/db/DESIGN.md has the exact form.
type AuditRow struct {
	N       int64  `json:"n" db:"n"`
	At      Time   `json:"at" db:"at"`
	Who     string `json:"who" db:"who"` // an identity, or "daemon"
	PID     int    `json:"pid" db:"pid"`
	Action  string `json:"action" db:"action"` // save, remove, restore, …
	Owner   Ref    `json:"owner" db:"owner"`
	Agent   Ref    `json:"agent" db:"agent"`
	Run     Ref    `json:"run" db:"run"`
	Life    *int64 `json:"life" db:"life"`       // which life of the run: 1, 2, …; its number never changes
	Subject Ref    `json:"subject" db:"subject"` // the id of the object of the action
	Outcome string `json:"outcome" db:"outcome"` // done, or an error code
	Reason  Ref    `json:"reason" db:"reason"`
	Retries int    `json:"retries" db:"retries"`
	Detail  JSON   `json:"detail" db:"detail"`       // a JSON object
	Prev    string `json:"prev,omitempty" db:"prev"` // the Hash of the previous row; only administrators get it
	Hash    string `json:"hash,omitempty" db:"hash"` // only administrators get it
	Removed JSON   `json:"removed" db:"removed"`     // the checkpoints that the action removed: a JSON array of {id, kind, seq, reason}
}

// AuditFilter chooses audit rows, oldest first. Empty fields choose all rows; a row must match all
// other fields.
type AuditFilter struct {
	Agent   string
	Run     string
	Action  string // an action, or AuditDecisions
	Who     string // who did it: an identity, or "daemon"
	Outcome string // OutcomeRefused, "done" or an error code
	Since   Time   // rows from this time on
	Newest  bool   // newest first
	After   int64  // oldest first: only rows with a greater n
	Before  int64  // newest first: only rows with a smaller n; 0 for all
	Limit   int
}

// Values of an AuditFilter that stand for several values each.
const (
	AuditDecisions = "decisions" // every action except saves, steps, events and reads
	OutcomeRefused = "refused"   // every outcome except done
)

// Check refuses a filter that contradicts itself.
func (f *AuditFilter) Check() error {
	if err := optional(f.Agent, CheckAgentName); err != nil {
		return err
	}
	if err := optional(f.Run, CheckLife); err != nil {
		return err
	}
	switch {
	case f.Newest && f.After != 0:
		return Errorf(CodeInvalid, "after works with the oldest rows first: with the newest first, use before")
	case !f.Newest && f.Before != 0:
		return Errorf(CodeInvalid, "before works with the newest rows first: with the oldest first, use after")
	}
	return nil
}

// AuditPage is one page of audit rows.
type AuditPage struct {
	Audit []AuditRow `json:"audit"`
	Next  *int64     `json:"next"` // After of the next page, or Before if newest first; null on the last page
}

// Refusal is a request that was refused before it reached the store.
type Refusal struct {
	Action string
	Agent  string
	Code   Code
	Reason string
}

// PruneRequest asks to apply the policies now.
type PruneRequest struct {
	Agent  string `json:"agent,omitempty"` // "" means every agent of the owner
	DryRun bool   `json:"dry_run,omitempty"`
}

// PruneReport lists what was removed, or would be, and what the clock guard kept.
type PruneReport struct {
	DryRun  bool      `json:"dry_run"`
	Removed []Removal `json:"removed"`
	Guarded bool      `json:"guarded"` // no age limit applies now: the daemon has just started or the clock jumped
}

// ExportRequest chooses what an export contains.
type ExportRequest struct {
	Agents []string // empty means all agents of the owner
	Run    string   // of a single agent: export only this run, with its earlier lives

	NoFiles bool // without the files that checkpoints name
}

// Check refuses an invalid request.
func (r *ExportRequest) Check() error {
	for _, name := range r.Agents {
		if err := CheckAgentName(name); err != nil {
			return err
		}
	}
	if r.Run != "" && len(r.Agents) != 1 {
		return Errorf(CodeInvalid, "a run belongs to one agent: name its agent too")
	}
	return optional(r.Run, CheckLife)
}

// ImportRequest chooses the agent of an import.
type ImportRequest struct {
	Agent string // "" means the names that the export contains
}

// ImportReport describes the result of an import. Importing the same file again changes nothing.
type ImportReport struct {
	Agent       string            `json:"agent"`             // the first imported agent
	Agents      []string          `json:"agents"`            // all imported agents
	Version     int               `json:"version"`           // of the file
	Runs        int               `json:"runs"`              // runs that were created
	RunsPresent int               `json:"runs_present"`      // runs that existed already
	Imported    int               `json:"imported"`          // checkpoints
	Present     int               `json:"present"`           // checkpoints that existed already, or whose runs existed already
	Rows        map[string]int64  `json:"rows,omitempty"`    // other imported rows: the number of each kind
	Uncertain   []UncertainRun    `json:"uncertain"`         // runs that a person must decide about: the file does not contain all of them
	Renamed     map[string]string `json:"renamed,omitempty"` // ids that another agent already has, and their new ids
	Pruned      []string          `json:"pruned"`
}

// UncertainRun is an imported run that must not continue before a person decides.
type UncertainRun struct {
	Agent  string `json:"agent"`
	Run    string `json:"run"`
	Reason string `json:"reason"`
}
