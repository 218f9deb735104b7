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
	Detail  JSON   `json:"detail" db:"detail"` // a JSON object
	Prev    string `json:"prev" db:"prev"`
	Hash    string `json:"hash" db:"hash"`
}

// AuditFilter chooses audit rows, oldest first.
type AuditFilter struct {
	Agent  string
	Action string
	After  int64 // only rows with a greater n
	Limit  int
}

// AuditPage is one page of audit rows.
type AuditPage struct {
	Audit []AuditRow `json:"audit"`
	Next  *int64     `json:"next"` // the After of the next page, null on the last
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

// PruneReport says what went, or would go, and what the clock guard held back.
type PruneReport struct {
	DryRun  bool      `json:"dry_run"`
	Removed []Removal `json:"removed"`
	Guarded bool      `json:"guarded"` // nothing goes by age just now: the daemon has just started or the clock jumped
}

// ImportRequest says where an import goes.
type ImportRequest struct {
	Agent string // "" means the name that the export carries
}

// ImportReport says what an import did. Importing the same file again changes nothing.
type ImportReport struct {
	Agent    string            `json:"agent"`
	Imported int               `json:"imported"`
	Present  int               `json:"present"`           // were there already
	Renamed  map[string]string `json:"renamed,omitempty"` // ids that another agent has, and the new ones
	Pruned   []string          `json:"pruned"`
}
