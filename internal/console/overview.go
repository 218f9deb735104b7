package console

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// livePace is how often an open page refreshes, in milliseconds.
const livePace = "2000"

// overviewView is the first page.
type overviewView struct {
	frame
	Tiles       []tile
	Needs, More []needRow
	MoreWords   string
	NeedCount   int64
	Rows        []runRow
	Ended       []runRow
	Axis        template.HTML
	Span        string
	Running     int
	Waiting     int
	MoreRuns    int64
}

// tile is one number at the top of the page.
type tile struct {
	Name, Aside, Value, Small string
	Spark                     template.HTML
}

// adminOnly returns a tile, without its number if the caller may not see it.
func adminOnly(st *ckpt.Status, t tile) tile {
	if st.Database.Hidden() {
		return tile{Name: t.Name, Aside: t.Aside, Value: "–", Small: "for administrators"}
	}
	return t
}

// needRow is something that waits for a person.
type needRow struct {
	Key, Icon, Class, Title, Href, Where, Detail string
	Command                                      string // starts the agent of a run that nobody runs
	Unknown                                      string // says that nobody has recorded how the agent is started
	Since                                        ckpt.Time
	Age                                          time.Duration
	Buttons                                      []button
}

// button is a link to a form.
type button struct{ Label, Href string }

// runRow is a run in a list.
type runRow struct {
	Href, Name, Goal string
	Status           draw.Badge
	Lane             template.HTML
	Progress         template.HTML
	Steps            int64
	Cost             float64
	Tokens           int64
	Findings         int64
	Worst            draw.Badge
	Began, SavedAt   ckpt.Time
	Saved            time.Duration
	Stale            bool
	Labels           ckpt.Labels
}

// shownNeeds is how many needs are visible without unfolding.
const shownNeeds = 6

// staleAfter is how long a running run can save nothing before the page shows that.
const staleAfter = 30 * time.Minute

func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(headerLive) == "" {
		c.daemon.forget() // a person who loads the page wants the current state
	}
	o, err := c.daemon.overview(r.Context())
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	c.pulse.setNeeds(int(needsOf(o)))
	f := c.frameOf(r, "Overview", "")
	f.Live, f.Now = livePace, o.At
	v := viewOverview(f, o, c.options.ReadOnly)
	v.Tiles = pulseTiles(c.pulse, o)
	c.show(w, r, http.StatusOK, "overview", v)
}

func needsOf(o *survey.Overview) int64 { return int64(len(o.Needs)) + o.MoreNeeds }

// viewOverview fills the overview page.
func viewOverview(f frame, o *survey.Overview, readOnly bool) *overviewView {
	v := &overviewView{frame: f, Axis: draw.Axis(o.From, o.To), Span: "the last " + draw.Age(o.To.Sub(o.From.Time)),
		MoreRuns: o.MoreRuns, NeedCount: needsOf(o)}
	for i := range o.Needs {
		row := needOf(f.Base, o, &o.Needs[i], readOnly)
		if i < shownNeeds {
			v.Needs = append(v.Needs, row)
		} else {
			v.More = append(v.More, row)
		}
	}
	if len(o.Needs) > shownNeeds {
		v.MoreWords = moreWords(o.Needs[shownNeeds:])
	}
	for i := range o.Runs {
		r := &o.Runs[i]
		row := rowOf(f.Base, o, r)
		if !r.Status.Resumable() {
			if len(v.Ended) < 6 {
				v.Ended = append(v.Ended, row)
			}
			continue
		}
		if r.Status == ckpt.RunRunning || r.Status == ckpt.RunStarting {
			v.Running++
		} else {
			v.Waiting++
		}
		v.Rows = append(v.Rows, row)
	}
	slices.SortStableFunc(v.Rows, func(a, b runRow) int {
		return cmp.Or(rank(a)-rank(b), b.Began.Compare(a.Began.Time), cmp.Compare(a.Name, b.Name))
	})
	v.cut()
	return v
}

// shownRuns is how many live and unfinished runs are on the page.
const shownRuns = 40

// cut leaves the remaining runs to the list of runs.
func (v *overviewView) cut() {
	if n := len(v.Rows); n > shownRuns {
		v.MoreRuns += int64(n - shownRuns)
		v.Rows = v.Rows[:shownRuns]
	}
}

// rank sorts running runs first.
func rank(r runRow) int {
	if r.Status.Class == "live" {
		return 0
	}
	return 1
}

// runPath returns the address of a run's page.
func runPath(base, owner, agent, run string) string {
	return base + "o/" + url.PathEscape(owner) + "/" + url.PathEscape(agent) + "/" + url.PathEscape(run)
}

func rowOf(base string, o *survey.Overview, r *survey.RunLine) runRow {
	row := runRow{
		Href: runPath(base, r.Owner, r.Agent, r.Run), Name: r.Agent + " / " + r.Run, Goal: draw.FirstLine(r.Goal, survey.GoalLength),
		Status: draw.StatusBadge(r.Status), Lane: draw.Lane(o, r), Steps: r.Steps, Cost: r.CostUSD, Tokens: r.InputTokens + r.OutputTokens,
		Findings: r.Findings, Began: r.StartedAt, SavedAt: r.SavedAt, Labels: r.Labels,
	}
	if r.Progress != nil {
		row.Progress = draw.Bar(*r.Progress, 64)
	}
	if r.Findings > 0 {
		row.Worst = draw.SeverityBadge(r.Worst)
	}
	if !r.SavedAt.IsZero() {
		row.Saved = o.At.Sub(r.SavedAt.Time)
		row.Stale = r.Status == ckpt.RunRunning && row.Saved > staleAfter
	}
	return row
}

// needOf describes what waits, and links to the possible actions.
func needOf(base string, o *survey.Overview, n *survey.Need, readOnly bool) needRow {
	row := needRow{
		Key: n.Key, Icon: "crit", Class: "crit", Since: n.Since, Age: o.At.Sub(n.Since.Time),
		Where: n.Agent + " / " + n.Run, Detail: n.Why, Href: runPath(base, n.Owner, n.Agent, n.Run),
	}
	form := func(label, what string, more ...string) button {
		q := url.Values{"owner": {n.Owner}, "agent": {n.Agent}, "run": {n.Run}}
		for i := 0; i+1 < len(more); i += 2 {
			q.Set(more[i], more[i+1])
		}
		return button{label, base + "ask/" + what + "?" + q.Encode()}
	}
	text := draw.FirstLine(n.Text, 160)
	switch n.What {
	case survey.NeedOperation:
		row.Icon, row.Title = "unc", "Did “"+text+"” take effect?"
		row.Buttons = []button{
			form("It did", "resolve", "op", pack(n.Operation), "status", "it_did"),
			form("It did not", "resolve", "op", pack(n.Operation), "status", "it_did_not"),
			form("Repeat…", "resolve", "op", pack(n.Operation), "status", "repeat"),
		}
	case survey.NeedPrompt:
		row.Icon, row.Title = "ask", text
		if n.PromptKind == ckpt.PromptDecision {
			row.Title, row.Detail = "Resume, begin anew, or give up "+n.Run+"?", draw.FirstLine(n.Why, 160)
		}
		row.Buttons = []button{form("Answer…", "answer", "prompt", string(n.Prompt))}
	case survey.NeedFinding:
		row.Title = strings.TrimSuffix(text, ".")
		row.Buttons = []button{{"Look", row.Href}, form("Dismiss…", "dismiss", "finding", string(n.Finding), "severity", "critical")}
	case survey.NeedSecret:
		row.Icon, row.Class, row.Title = "warn", "warn", "Something looks like a secret in a saved state"
		row.Detail = text
		row.Buttons = []button{{"Look", row.Href}, form("Dismiss…", "dismiss", "finding", string(n.Finding))}
	case survey.NeedLostRun:
		row.Icon, row.Title = "lost", "The owner of "+n.Run+" is gone; nobody has resumed it"
		if n.MayGoOn {
			row.Title, row.Detail = n.Run+" may go on; nobody runs it", "a person has answered how it goes on"
		}
		row.Command = ckpt.ExecCommand(n.Agent, n.Run, n.Command)
		if n.Command == nil {
			row.Unknown = ckpt.CommandUnknown
		}
		row.Buttons = []button{{"Look", row.Href}}
	case survey.NeedFindings, survey.NeedSecrets, survey.NeedLostRuns:
		row = sharedNeed(base, n, row)
	default: // from a newer daemon
		row.Title = text
		row.Buttons = []button{{"Look", row.Href}}
	}
	if n.WaitingPID != 0 {
		row.Detail, row.Command = strings.TrimPrefix(row.Detail+" · the run "+ckpt.WaitsText(n.WaitingPID), " · "), ""
		row.Title, row.Unknown = strings.TrimSuffix(row.Title, "; nobody runs it"), ""
	}
	if readOnly {
		row.Buttons = []button{{"Look", row.Href}}
	}
	return row
}

// sharedNeed returns one row for a need that too many runs have.
func sharedNeed(base string, n *survey.Need, row needRow) needRow {
	runs, have := draw.Plural(int(n.Count), "more run"), "have"
	if n.Count == 1 {
		have = "has"
	}
	switch n.What {
	case survey.NeedFindings:
		row.Title, row.Where, row.Href = runs+" "+have+" critical findings", "see Drift", base+"drift?severity=critical"
	case survey.NeedSecrets:
		row.Icon, row.Class = "warn", "warn"
		row.Title, row.Where, row.Href = runs+" "+have+" what looks like a secret", "see Drift", base+"drift?rule=secret"
	default:
		row.Icon = "lost"
		row.Title, row.Where, row.Href = runs+" that nobody runs", "see Runs", base+"runs?status=interrupted"
	}
	row.Buttons = []button{{"Look", row.Href}}
	return row
}

// moreWords describes the folded needs.
func moreWords(needs []survey.Need) string {
	names := map[string]string{
		survey.NeedOperation: "uncertain operation", survey.NeedPrompt: "question", survey.NeedFinding: "run with critical findings",
		survey.NeedLostRun: "run that nobody runs", survey.NeedSecret: "possible secret",
	}
	counts, order := map[string]int{}, []string{}
	for _, n := range needs {
		name := names[strings.TrimSuffix(n.What, "s")]
		if name == "" {
			name = "other thing"
		}
		if counts[name] == 0 {
			order = append(order, name)
		}
		counts[name] += int(max(n.Count, 1))
		if names[n.What] != "" {
			counts[name] += 1 - int(max(n.Count, 1))
		}
	}
	words := []string{}
	for _, name := range order {
		text := draw.Plural(counts[name], name)
		if rest, is := strings.CutPrefix(name, "run "); is {
			text = draw.Plural(counts[name], "run") + " " + rest
		}
		words = append(words, text)
	}
	return fmt.Sprintf("%d more: %s", len(needs), strings.Join(words, ", "))
}

// pulseTiles returns the five numbers at the top.
func pulseTiles(p *pulse, o *survey.Overview) []tile {
	st := p.now()
	if st == nil {
		return nil
	}
	kept := int64(0)
	for _, n := range st.Counts {
		kept += n
	}
	rates := p.series(func(b bucket) float64 { return b.rate })
	peak, now := 0.0, 0.0
	for _, v := range p.series(func(b bucket) float64 { return b.peak }) {
		peak = max(peak, v)
	}
	if len(rates) > 0 {
		now = rates[len(rates)-1]
	}
	open := int64(0)
	for _, n := range o.Counts.Findings {
		open += n
	}
	file := ""
	if !st.Database.Hidden() {
		file = "file " + draw.Bytes(st.Database.Bytes)
	}
	return []tile{
		adminOnly(st, tile{"Writes a second", "last hour", fmt.Sprintf("%.1f", now), fmt.Sprintf("peak %.0f", peak), draw.Spark(rates)}),
		adminOnly(st, tile{"Commit, flushed", "p50 · p99", fmt.Sprintf("%.1f", st.Writer.CommitP50),
			fmt.Sprintf("ms · %.0f ms", st.Writer.CommitP99), draw.Spark(p.series(func(b bucket) float64 { return b.p99 }))}),
		{"Stored", draw.Plural(int(o.Counts.Agents), "agent"), draw.Bytes(st.Stored), file,
			draw.Spark(p.series(func(b bucket) float64 { return b.stored }))},
		{"Checkpoints", draw.Plural(int(o.Counts.Runs), "run"), draw.Count(kept), draw.Count(st.Worker.Removed) + " removed by age or budget",
			draw.Spark(p.series(func(b bucket) float64 { return b.kept }))},
		{"Open findings", draw.Count(o.Counts.Findings[ckpt.SeverityCritical]) + " critical", draw.Count(open), "",
			draw.Spark(p.series(func(b bucket) float64 { return b.findings }))},
	}
}
