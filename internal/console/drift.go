package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// driftView is what the detectors have found, by rule and over time.
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

// viewDrift orders findings by rule.
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
	v.Chart = findingChart(rules, by, chartFrom(page, now, length), now)
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

// chartFrom is where the time of the chart begins: where all that was found is younger,
// a little before the first of it.
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
	row.DismissedBar = bar(row.Dismissed, 120)
	return row
}

func driftRowOf(f frame, x *ckpt.Finding) driftRow {
	b := severityBadge(x.Severity)
	row := driftRow{Name: x.Agent + " / " + x.Run, Href: runPath(f.Base, x.Owner, x.Agent, x.Run)}
	row.Class, row.Icon, row.Rule, row.Message, row.At = b.Class, b.Icon, x.Rule, firstLine(x.Message, 200), x.At
	row.Dismiss = f.Base + "ask/dismiss?" + url.Values{"owner": {x.Owner}, "agent": {x.Agent}, "run": {x.Run}, "finding": {x.ID}}.Encode()
	return row
}

// mostMarks is how many findings a chart draws.
const mostMarks = 600

// findingChart draws findings, a lane for each rule.
func findingChart(rules []string, by map[string][]*ckpt.Finding, from, to ckpt.Time) template.HTML {
	const width, left = 1180.0, 130.0
	x := scale{from, to, width - left - 8}
	s := &svg{}
	height := float64(36 + 26*max(1, len(rules)))
	s.put(`<svg viewBox="0 0 `, width, ` `, height, `" role="img" aria-label="Findings by rule over time">`)
	drawn := 0
	for i, rule := range rules {
		y := 22 + i*26
		s.put(`<text class="lab" x="0" y="`, y+4, `">`, told(firstLine(rule, 20)), `</text><path class="gl" d="M`, left, ` `, y+13, `H`, width, `"/>`)
		for _, f := range by[rule] {
			if drawn++; drawn > mostMarks {
				break
			}
			s.put(`<g transform="translate(`, left+x.x(f.At), ` `, y, `)">`)
			s.triangle(findingClass(f.Severity, f.Closed == ""), 5)
			s.put(`<title>`, told(f.Agent+" / "+f.Run+": "+firstLine(f.Message, 160)), `</title></g>`)
		}
	}
	layout := "15:04"
	switch length := to.Sub(from.Time); {
	case length > 24*time.Hour:
		layout = "2 Jan"
	case length < 8*time.Minute:
		layout = "15:04:05"
	}
	for i := range 5 {
		at, anchor := ckpt.At(from.Add(to.Sub(from.Time)*time.Duration(i)/4)), "middle"
		text := at.In(zone).Format(layout)
		switch i {
		case 0:
			anchor = "start"
		case 4:
			anchor, text = "end", "now"
		}
		s.put(`<text x="`, left+float64(i)*(width-left-8)/4, `" y="`, height-6, `" text-anchor="`, anchor, `">`, told(text), `</text>`)
	}
	s.raw(`</svg>`)
	return s.html()
}
