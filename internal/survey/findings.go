package survey

import ckpt "github.com/ckptsidecar/ckptsidecar"

// FindingsQuery chooses findings of all runs, newest first.
//
//	GET /v1/findings?rule=&severity=&since=&until=&agent=&run=&closed=true&before=&limit=
type FindingsQuery struct {
	Agent    string
	Run      string // of that agent
	Rule     string
	Severity ckpt.Severity // exactly this one
	Since    ckpt.Time     // found at this time or later
	Until    ckpt.Time     // found before this time
	Closed   bool          // include closed findings
	Before   string        // a cursor
	Limit    int
}

// Check refuses a query that is invalid in itself.
func (q *FindingsQuery) Check() error {
	if q.Agent != "" {
		if err := ckpt.CheckAgentName(q.Agent); err != nil {
			return err
		}
	}
	switch {
	case q.Run != "" && q.Agent == "":
		return ckpt.Errorf(ckpt.CodeInvalid, "a run belongs to an agent: name its agent too")
	case q.Run != "":
		if err := ckpt.CheckLife(q.Run); err != nil {
			return err
		}
	}
	switch q.Severity {
	case "", ckpt.SeverityInfo, ckpt.SeverityWarn, ckpt.SeverityCritical:
	default:
		return ckpt.Errorf(ckpt.CodeInvalid, "severity must be info, warn or critical")
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until.Time) {
		return ckpt.Errorf(ckpt.CodeInvalid, "since is %s and until is %s: since must be before until", q.Since, q.Until)
	}
	if q.Before != "" {
		return ckpt.CheckID(q.Before)
	}
	return nil
}

// Findings is one page of findings. Each finding names its owner, agent and run.
type Findings struct {
	Findings []ckpt.Finding `json:"findings"`
	Next     ckpt.Ref       `json:"next"` // null on the last page
}
