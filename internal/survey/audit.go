package survey

import ckpt "github.com/ckptsidecar/ckptsidecar"

// The audit log is queried with ckpt.AuditFilter:
//
//	GET /v1/audit?newest=true&before=…&agent=…&run=…&who=…&action=…&outcome=…&since=…&limit=…

// MaxProblems is the most problems that an answer names.
const MaxProblems = 20

// VerifyRequest asks the daemon to check itself. Only administrators may send it,
// because the log is about all users.
//
//	POST /v1/verify {"chain": true}
type VerifyRequest struct {
	Chain bool `json:"chain"` // read the whole audit log and follow its chain of hashes
}

// Verified is the result of the check.
type Verified struct {
	At       ckpt.Time `json:"at"`
	OK       bool      `json:"ok"`       // nothing is wrong
	Problems []string  `json:"problems"` // the first MaxProblems, each a sentence
	TookMS   int64     `json:"took_ms"`
	Rows     int64     `json:"rows"` // how many rows were read
	Head     string    `json:"head"` // the hash of the last row
}
