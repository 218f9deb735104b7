package console

import (
	"context"
	"net/http"
	"net/url"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// pageOfAudit is how many rows a page shows.
const pageOfAudit = 60

// auditRows reads rows before a number, newest first, as many as fit on a page. older is
// where the next page begins, 0 if there is none.
func (c *Console) auditRows(ctx context.Context, q url.Values, before int64) (rows []ckpt.AuditRow, older int64, err error) {
	f := ckpt.AuditFilter{Agent: q.Get("agent"), Newest: true, Before: before, Limit: pageOfAudit}
	switch what := q.Get("what"); what {
	case "":
		f.Action = ckpt.AuditDecisions
	case "all":
	case "refused":
		f.Outcome = ckpt.OutcomeRefused
	default:
		f.Action = what
	}
	page, err := c.daemon.all().Audit(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	if n := len(page.Audit); n > 0 && page.Next != nil {
		older = page.Audit[n-1].N
	}
	return page.Audit, older, nil
}

// chainView is the result of checking the chain.
type chainView struct {
	frame
	OK       bool
	Rows     int64
	Head     string
	TookMS   int64
	Problems []string
	At       ckpt.Time
}

// chain makes the daemon check the chain of its audit log. That reads the whole log, so
// it only happens when a person asks for it. The log covers all owners, so the check names none.
func (c *Console) chain(w http.ResponseWriter, r *http.Request) {
	v, err := c.daemon.of("").VerifyChain(r.Context())
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	c.show(w, r, http.StatusOK, "chainpage", chainView{
		frame: c.frameOf(r, "The chain of the audit log", "audit"), OK: v.OK, Rows: v.Rows, Head: v.Head,
		TookMS: v.TookMS, Problems: v.Problems, At: v.At,
	})
}
