package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// quietActions are the most frequent actions in the log. A person who looks for decisions
// skips them. The daemon leaves out the same actions for the filter value decisions.
var quietActions = []string{"save", "remove", "begin_step", "finish_step", "append_events", "graph_writes", "import", "finding"}

func (c *Console) audit(w http.ResponseWriter, r *http.Request) {
	ctx, q := r.Context(), r.URL.Query()
	st := c.pulse.now() // a new count for each page would cost more than the page
	if st == nil {
		var err error
		if st, err = c.daemon.all().Status(ctx); err != nil {
			c.trouble(w, r, err)
			return
		}
	}
	before, _ := strconv.ParseInt(q.Get("before"), 10, 64)
	rows, older, err := c.auditRows(ctx, q, before)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	c.show(w, r, http.StatusOK, "audit", viewAudit(c.frameOf(r, "Audit", "audit"), st, rows, before, older, q))
}

// viewAudit shows rows, newest first. before and older are where this page and the next
// one begin: 0 means the newest row, or no next page.
func viewAudit(f frame, st *ckpt.Status, rows []ckpt.AuditRow, before, older int64, q url.Values) *auditView {
	v := &auditView{frame: f, Anchor: st.Database.AuditHead, Count: st.Database.AuditRows}
	for i := range rows {
		v.Rows = append(v.Rows, auditRowOf(v.Base, &rows[i]))
	}
	v.Filters = auditFilters(q)
	if v.Admin { // other users see neither the numbers of the rows nor the rows of others
		v.SQL = auditSQL(q, rows)
	}
	if older > 0 {
		next := url.Values{"what": {q.Get("what")}, "agent": {q.Get("agent")}, "before": {strconv.FormatInt(older, 10)}}
		v.Older = v.Base + "audit?" + next.Encode()
	}
	if before > 0 {
		v.Newer = v.Base + "audit?" + url.Values{"what": {q.Get("what")}, "agent": {q.Get("agent")}}.Encode()
	}
	return v
}

func auditFilters(q url.Values) []filter {
	what := filter{"what", "What", []option{
		{Value: "", Label: "decisions: no saves, steps, looks"}, {Value: "all", Label: "everything"}, {Value: "refused", Label: "what was refused"},
		{Value: "save", Label: "save"}, {Value: "remove", Label: "remove"},
		{Value: "restore", Label: "restore"}, {Value: "resume", Label: "resume"}, {Value: "dismiss_finding", Label: "dismiss_finding"},
		{Value: "resolve_operation", Label: "resolve_operation"}, {Value: "answer_prompt", Label: "answer_prompt"},
	}}
	for i := range what.Options {
		what.Options[i].Chosen = what.Options[i].Value == q.Get("what")
	}
	return []filter{what}
}

func auditRowOf(base string, a *ckpt.AuditRow) auditRow {
	row := auditRow{AuditRow: *a, Why: draw.FirstLine(string(a.Reason), 300)}
	if a.Agent != "" {
		row.Of = string(a.Agent)
		if a.Run != "" {
			row.Of += " / " + string(a.Run)
			row.Href = runPath(base, string(a.Owner), string(a.Agent), string(a.Run))
		}
	}
	if row.Why == "" {
		row.Why = detailText(a.Detail)
	}
	return row
}

// detailText returns the detail of a row in a few words.
func detailText(raw ckpt.JSON) string {
	var detail map[string]any
	if json.Unmarshal(raw, &detail) != nil {
		return ""
	}
	words := []string{}
	for _, name := range sortedNames(detail) {
		switch value := detail[name].(type) {
		case string, float64, bool:
			if name != "sha256" && name != "checkpoint" && name != "id" {
				words = append(words, fmt.Sprintf("%s %v", strings.ReplaceAll(name, "_", " "), value))
			}
		}
	}
	return draw.FirstLine(strings.Join(words, " · "), 120)
}

func sortedNames(m map[string]any) []string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// auditSQL returns a statement that shows the same rows to a person who only has the
// sqlite3 command.
func auditSQL(q url.Values, rows []ckpt.AuditRow) string {
	where := []string{}
	if len(rows) > 0 {
		where = append(where, fmt.Sprintf("n <= %d", rows[0].N))
	}
	quoted := make([]string, len(quietActions))
	for i, a := range quietActions {
		quoted[i] = "'" + a + "'"
	}
	switch what := q.Get("what"); what {
	case "":
		where = append(where, `action NOT LIKE 'admin\_%' ESCAPE '\'`, "action NOT IN ("+strings.Join(quoted, ", ")+")")
	case "all":
	case "refused":
		where = append(where, "outcome <> 'done'")
	case "remove":
		where = append(where, "(action = 'remove' OR removed <> '[]')")
	default:
		if isWord(what) {
			where = append(where, "action = '"+what+"'")
		}
	}
	if agent := q.Get("agent"); ckpt.CheckAgentName(agent) == nil {
		where = append(where, "agent = '"+agent+"'")
	}
	text := "SELECT n, at, who, action, agent, run, reason, outcome, hash\n  FROM audit_log"
	if len(where) > 0 {
		text += "\n WHERE " + strings.Join(where, "\n   AND ")
	}
	return text + fmt.Sprintf("\n ORDER BY n DESC LIMIT %d;", pageOfAudit)
}

// isWord accepts only text that cannot end the string in the statement.
func isWord(s string) bool {
	return s != "" && len(s) < 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}
