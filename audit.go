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
	Subject Ref    `json:"subject" db:"subject"` // the id of what it was done to
	Outcome string `json:"outcome" db:"outcome"` // done, or an error code
	Reason  Ref    `json:"reason" db:"reason"`
	Retries int    `json:"retries" db:"retries"`
	Detail  JSON   `json:"detail" db:"detail"`       // a JSON object
	Prev    string `json:"prev,omitempty" db:"prev"` // of the row before; administrators alone get it
	Hash    string `json:"hash,omitempty" db:"hash"` // administrators alone get it
	Removed JSON   `json:"removed" db:"removed"`     // the checkpoints that went because of it: a JSON array of {id, kind, seq, reason}
}

// AuditFilter chooses audit rows, oldest first. Empty fields choose all rows; a row must match all
// other fields.
type AuditFilter struct {
	Agent   string
	Run     string
	Action  string // an action, or AuditDecisions
	Who     string // who did it: an identity, or "daemon"
	Outcome string // OutcomeRefused, "done" or an error code
	Since   Time   // rows since then
	Newest  bool   // newest first
	After   int64  // oldest first: only rows with a greater n
	Before  int64  // newest first: only rows with a smaller n; 0 for all
	Limit   int
}

// Words of an AuditFilter that each stand for several values.
const (
	AuditDecisions = "decisions" // every action but saves, steps, events and reads
	OutcomeRefused = "refused"   // every outcome but done
)

// Check refuses a filter that contradicts itself.
func (f *AuditFilter) Check() error {
	if err := optional(f.Agent, CheckAgentName); err != nil {
		return err
	}
	if err := optional(f.Run, CheckRunName); err != nil {
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
	Next  *int64     `json:"next"` // the After of the next page, or newest first the Before; null on the last
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
	Guarded bool      `json:"guarded"` // nothing goes by age just now: the daemon has just started or the clock jumped
}

// ExportRequest chooses what an export contains.
type ExportRequest struct {
	Agents []string // none means all of the owner's
	Run    string   // of a single agent: this run alone

	NoFiles bool // without the files that checkpoints name
}

// Check refuses a request that is wrong in itself.
func (r *ExportRequest) Check() error {
	for _, name := range r.Agents {
		if err := CheckAgentName(name); err != nil {
			return err
		}
	}
	if r.Run != "" && len(r.Agents) != 1 {
		return Errorf(CodeInvalid, "a run belongs to one agent: name its agent too")
	}
	return optional(r.Run, CheckRunName)
}

// ImportRequest chooses the agent of an import.
type ImportRequest struct {
	Agent string // "" means the names that the export carries
}

// ImportReport describes the result of an import. Importing the same file again changes nothing.
type ImportReport struct {
	Agent       string            `json:"agent"`             // the first one
	Agents      []string          `json:"agents"`            // all
	Version     int               `json:"version"`           // of the file
	Runs        int               `json:"runs"`              // that were made
	RunsPresent int               `json:"runs_present"`      // that were there already
	Imported    int               `json:"imported"`          // checkpoints
	Present     int               `json:"present"`           // checkpoints that were there already, or are of runs that were
	Rows        map[string]int64  `json:"rows,omitempty"`    // what else was brought in: how many of each kind
	Uncertain   []UncertainRun    `json:"uncertain"`         // runs that a person must decide about, because the file does not say all of them
	Renamed     map[string]string `json:"renamed,omitempty"` // ids that another agent has, and the new ones
	Pruned      []string          `json:"pruned"`
}

// UncertainRun is an imported run that must not continue before a person decides.
type UncertainRun struct {
	Agent  string `json:"agent"`
	Run    string `json:"run"`
	Reason string `json:"reason"`
}
