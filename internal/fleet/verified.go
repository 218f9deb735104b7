package fleet

import (
	"fmt"
	"strings"
)

// Verified says what a check of everything that an engine holds has found.
type Verified struct {
	Hosts       int64 `json:"hosts"`
	AuditRows   int64 `json:"audit_rows"`
	Claims      int64 `json:"claims"`
	Runs        int64 `json:"runs"`
	Checkpoints int64 `json:"checkpoints"`
	Rows        int64 `json:"rows"`
	Unopened    int64 `json:"sealed_not_opened"`   // rows for which this host has no key
	Compared    int64 `json:"compared_audit_rows"` // rows compared with the audit log of this host
	Archived    int64 `json:"archived_audit_rows"` // rows that were archived before they were shipped

	Problems []Problem `json:"problems"`
}

// Problem is something in the engine that is damaged.
type Problem struct {
	Rule    string `json:"rule"` // chain, claim, agent, run, checkpoint, row or orphan
	Host    string `json:"host"` // the name of the host that has shipped it
	Subject string `json:"subject"`
	What    string `json:"what"`
}

// String returns the problem in one line.
func (p *Problem) String() string {
	return fmt.Sprintf("%s %s of host %s: %s", p.Rule, p.Subject, p.Host, p.What)
}

// Found adds a problem.
func (v *Verified) Found(rule, host, subject, what string) {
	v.Problems = append(v.Problems, Problem{rule, host, subject, what})
}

// Link is a row of a host's audit log as the engine holds it.
type Link struct {
	N      int64
	Action string
	Hash   string
	Texts  *string
}

// Chain follows the rows of one audit log in the engine. The rows must come in order.
type Chain struct {
	Gaps []Gap

	last Link
}

// Gap is a range of rows that the engine lacks.
type Gap struct{ From, To int64 }

// Next takes the next row, and returns what is wrong with it, "" for nothing.
func (c *Chain) Next(l Link) (what string) {
	if c.last.N > 0 && l.N != c.last.N+1 {
		c.Gaps = append(c.Gaps, Gap{c.last.N + 1, l.N - 1})
	}
	switch {
	case len(l.Hash) != 64 || strings.Trim(l.Hash, "0123456789abcdef") != "":
		what = fmt.Sprintf("its hash %.20q is no hash", l.Hash)
	case c.last.Hash == l.Hash:
		what = "it has the hash of the row before it"
	}
	c.last = l
	return what
}

// End compares the last row with the mark, and returns what is wrong, "" for nothing.
func (c *Chain) End(m Mark) string {
	switch {
	case c.last.N < m.N:
		return fmt.Sprintf("rows %d to %d are missing", c.last.N+1, m.N)
	case c.last.N > m.N:
		return fmt.Sprintf("it has row %d, and the mark is at %d", c.last.N, m.N)
	case c.last.Hash != m.Hash:
		return fmt.Sprintf("the hash of row %d is not that of the mark", m.N)
	}
	return ""
}

// ClaimHeld is a claim as the engine holds it, with the values that it must agree with.
type ClaimHeld struct {
	RunUID   string
	Term     int64
	From, To string // databases
	FromN    int64
	FromHash string
	RowHash  string // of row FromN of the former owner's audit log, "" if the engine does not have that row
	RunHost  string // the host that has the run now, "" if the run is gone
	RunTerm  int64
	How      string
}

// CheckClaims returns what is wrong with the claims of one run. The claims must be
// sorted by term.
func CheckClaims(claims []ClaimHeld) (problems []string) {
	for i, c := range claims {
		again := c.How == HowReasserted // the engine had lost this claim, and perhaps others before it
		if i > 0 && c.Term != claims[i-1].Term+1 && !again {
			problems = append(problems, fmt.Sprintf("no claim gave the terms %d to %d", claims[i-1].Term+1, c.Term-1))
		}
		if i > 0 && c.From != claims[i-1].To && !again {
			problems = append(problems, fmt.Sprintf("the claim of term %d takes the run from a host that did not have it", c.Term))
		}
		if c.FromHash != "" && c.RowHash != c.FromHash {
			problems = append(problems, fmt.Sprintf("the claim of term %d does not fit row %d of the former owner's audit log", c.Term, c.FromN))
		}
	}
	if last := claims[len(claims)-1]; last.RunHost != "" && (last.RunTerm != last.Term || last.RunHost != last.To) {
		problems = append(problems, fmt.Sprintf("the run has term %d, and its last claim gave %d, or another host has it", last.RunTerm, last.Term))
	}
	return problems
}
