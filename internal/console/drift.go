package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// driftView shows what the detectors have found, by rule and over time.
type driftView struct {
	frame
	Chart   template.HTML
	Rules   []ruleRow
	List    []driftRow
	Count   int
	Span    string
	Filters []filter
	More    bool
}

type ruleRow struct {
	Rule                   string
	Fired, Runs, Open      int
	Dismissed              float64
	DismissedBar           template.HTML
	Href, SeverityOfNewest string
}

type driftRow struct {
	findingRow
	Name, Href string
}

// driftSpans are the times that the page can look back.
var driftSpans = []struct {
	name, label string
	length      time.Duration
}{{"", "last two hours", 2 * time.Hour}, {"24h", "last day", 24 * time.Hour}, {"168h", "last week", 168 * time.Hour}}

func (c *Console) drift(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	span := driftSpans[0]
	for _, s := range driftSpans {
		if s.name == q.Get("since") {
			span = s
		}
	}
	now := ckpt.At(c.options.Now())
	page, err := c.daemon.all().Findings(r.Context(), survey.FindingsQuery{
		Rule: q.Get("rule"), Severity: ckpt.Severity(q.Get("severity")), Since: ckpt.At(now.Add(-span.length)), Closed: true, Limit: ckpt.MaxLimit,
	})
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	c.show(w, r, http.StatusOK, "drift", viewDrift(c.frameOf(r, "Drift", "drift"), page, now, span.length, span.label, q))
}

// viewDrift groups findings by rule.
func viewDrift(f frame, page *survey.Findings, now ckpt.Time, length time.Duration, label string, q url.Values) *driftView {
	v := &driftView{frame: f, Count: len(page.Findings), Span: label, More: page.Next != ""}
	by := map[string][]*ckpt.Finding{}
	for i := range page.Findings {
		x := &page.Findings[i]
		by[x.Rule] = append(by[x.Rule], x)
	}
	rules := make([]string, 0, len(by))
	for rule := range by {
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b string) int {
		if n := len(by[b]) - len(by[a]); n != 0 {
			return n
		}
		if a < b {
			return -1
		}
		return 1
	})
	for _, rule := range rules {
		v.Rules = append(v.Rules, ruleOf(f.Base, rule, by[rule]))
	}
	v.Chart = draw.Findings(rules, by, chartFrom(page, now, length), now)
	for i := range page.Findings {
		if x := &page.Findings[i]; x.Closed == "" && len(v.List) < 40 {
			v.List = append(v.List, driftRowOf(f, x))
		}
	}
	since := filter{Name: "since", Label: "Since"}
	for _, s := range driftSpans {
		since.Options = append(since.Options, option{Value: s.name, Label: s.label, Chosen: s.name == q.Get("since")})
	}
	severity := filter{"severity", "Severity", []option{{Label: "every severity"}}}
	for _, s := range []ckpt.Severity{ckpt.SeverityCritical, ckpt.SeverityWarn, ckpt.SeverityInfo} {
		severity.Options = append(severity.Options, option{Value: string(s), Label: string(s), Chosen: string(s) == q.Get("severity")})
	}
	rule := filter{"rule", "Rule", []option{{Label: "every rule"}}}
	if chosen := q.Get("rule"); chosen != "" && !slices.Contains(rules, chosen) {
		rules = append(rules, chosen)
	}
	for _, name := range rules {
		rule.Options = append(rule.Options, option{Value: name, Label: name, Chosen: name == q.Get("rule")})
	}
	v.Filters = []filter{since, severity, rule}
	return v
}

// chartFrom returns the beginning of the chart's time: if all findings are recent, a
// little before the first of them.
func chartFrom(page *survey.Findings, now ckpt.Time, length time.Duration) ckpt.Time {
	oldest := now
	for i := range page.Findings {
		if t := page.Findings[i].At; t.Before(oldest.Time) {
			oldest = t
		}
	}
	age := min(length, max(now.Sub(oldest.Time)*11/10, 2*time.Minute))
	return ckpt.At(now.Add(-age))
}

func ruleOf(base, rule string, list []*ckpt.Finding) ruleRow {
	row := ruleRow{Rule: rule, Fired: len(list), Href: base + "drift?rule=" + url.QueryEscape(rule)}
	runs, dismissed := map[string]bool{}, 0
	for _, x := range list {
		runs[x.Owner+"/"+x.Agent+"/"+x.Run] = true
		if x.Closed == "" {
			row.Open++
		}
		if !x.DismissedAt.IsZero() {
			dismissed++
		}
	}
	row.Runs, row.Dismissed = len(runs), float64(dismissed)/float64(len(list))
	row.DismissedBar = draw.Bar(row.Dismissed, 120)
	return row
}

func driftRowOf(f frame, x *ckpt.Finding) driftRow {
	b := draw.SeverityBadge(x.Severity)
	row := driftRow{Name: x.Agent + " / " + x.Run, Href: runPath(f.Base, x.Owner, x.Agent, x.Run)}
	row.Class, row.Icon, row.Rule, row.Message, row.At = b.Class, b.Icon, x.Rule, draw.FirstLine(x.Message, 200), x.At
	row.Dismiss = f.Base + "ask/dismiss?" + url.Values{"owner": {x.Owner}, "agent": {x.Agent}, "run": {x.Run}, "finding": {x.ID}}.Encode()
	return row
}
