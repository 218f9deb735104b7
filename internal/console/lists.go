package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// listView is a list of runs with its filters.
type listView struct {
	frame
	Filters            []filter
	Groups             []runGroup
	Shown              int
	Next               string // the address of the next page
	Group, Label, Goal string
}

type filter struct {
	Name, Label string
	Options     []option
}

type runGroup struct {
	Name string
	Rows []listRow
}

// listRow is a run in a list.
type listRow struct {
	Href, Name, Goal, Owner string
	Status                  draw.Badge
	Labels                  ckpt.Labels
	Attempt, Steps          int64
	Progress                *float64
	StartedAt, UpdatedAt    ckpt.Time
	Began, Updated          string
}

// pageOfRuns is how many runs a page lists.
const pageOfRuns = 100

func (c *Console) runs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := ckpt.RunFilter{
		Agent: q.Get("agent"), Status: ckpt.RunStatus(q.Get("status")), Goal: strings.TrimSpace(q.Get("goal")),
		Before: q.Get("before"), Limit: pageOfRuns, Lives: q.Get("lives") != "", Sort: ckpt.RunSort(q.Get("sort")),
	}
	if s := q.Get("severity"); s != "" {
		f.Severity = ckpt.Severity(s)
	}
	if name, value, found := strings.Cut(q.Get("label"), "="); found {
		f.Labels = ckpt.Labels{strings.TrimSpace(name): strings.TrimSpace(value)}
	}
	page, err := c.daemon.all().Runs(r.Context(), f)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	agents, err := c.daemon.all().Agents(r.Context(), ckpt.AgentFilter{Limit: 200})
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	v := viewRuns(c.frameOf(r, "Runs", "runs"), page, agents, q)
	c.show(w, r, http.StatusOK, "runs", v)
}

// viewRuns arranges runs in groups.
func viewRuns(f frame, page *ckpt.RunPage, agents *ckpt.AgentPage, q url.Values) *listView {
	v := &listView{frame: f, Shown: len(page.Runs), Group: q.Get("group"), Label: q.Get("label"), Goal: q.Get("goal")}
	statuses := []option{{Label: "every status"}}
	for _, s := range ckpt.RunStatuses {
		statuses = append(statuses, option{Value: string(s), Label: draw.StatusBadge(s).Word})
	}
	names := []option{{Label: "every agent"}}
	for _, a := range agents.Agents {
		if !slices.ContainsFunc(names, func(o option) bool { return o.Value == a.Agent }) {
			names = append(names, option{Value: a.Agent, Label: a.Agent})
		}
	}
	keys := []option{{Label: "no groups"}, {Value: "agent", Label: "by agent"}, {Value: "workflow", Label: "by workflow"}}
	seen := map[string]bool{}
	for i := range page.Runs {
		for name := range page.Runs[i].Labels {
			seen[name] = true
		}
	}
	for _, name := range sortedKeys(seen) {
		keys = append(keys, option{Value: "label:" + name, Label: "by " + name})
	}
	lives := []option{{Label: "present lives"}, {Value: "all", Label: "earlier lives too"}}
	orders := []option{{Label: "last changed first"}, {Value: string(ckpt.SortStarted), Label: "last begun first"}}
	v.Filters = []filter{{"status", "Status", statuses}, {"agent", "Agent", names}, {"lives", "Lives", lives}, {"sort", "Order", orders}, {"group", "Groups", keys}}
	for i := range v.Filters {
		for j := range v.Filters[i].Options {
			o := &v.Filters[i].Options[j]
			o.Chosen = o.Value == q.Get(v.Filters[i].Name)
		}
	}
	index := map[string]int{}
	for i := range page.Runs {
		run := &page.Runs[i]
		name := groupOf(run, v.Group)
		if _, ok := index[name]; !ok {
			index[name] = len(v.Groups)
			v.Groups = append(v.Groups, runGroup{Name: name})
		}
		g := &v.Groups[index[name]]
		g.Rows = append(g.Rows, rowOfRun(f, run))
	}
	if page.Next != "" {
		next := url.Values{}
		for name, values := range q {
			next[name] = values
		}
		next.Set("before", string(page.Next))
		v.Next = f.Base + "runs?" + next.Encode()
	}
	return v
}

func sortedKeys(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for name := range set {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func groupOf(run *ckpt.Run, by string) string {
	switch label, is := strings.CutPrefix(by, "label:"); {
	case is:
		if value := run.Labels[label]; value != "" {
			return label + " " + value
		}
		return "without " + label
	case by == "agent":
		return run.Agent
	case by == "workflow":
		if run.Workflow == "" {
			return "without a workflow"
		}
		return string(run.Workflow)
	}
	return ""
}

func rowOfRun(f frame, run *ckpt.Run) listRow {
	return listRow{
		Href: runPath(f.Base, run.Owner, run.Agent, run.Run), Name: run.Agent + " / " + run.Run,
		Goal: draw.FirstLine(string(run.Goal), 160), Owner: run.Owner,
		Status: draw.StatusBadge(run.Status), Labels: run.Labels, Attempt: run.Attempt, Steps: run.StepsEnded, Progress: run.Progress,
		StartedAt: run.StartedAt, UpdatedAt: run.UpdatedAt, Began: draw.LongClock(f.Now, run.StartedAt),
		Updated: draw.Age(f.Now.Sub(run.UpdatedAt.Time)),
	}
}

// storageView shows what uses the storage.
type storageView struct {
	frame
	Tiles   []tile
	Agents  []agentRow
	Going   []goingRow
	More    int64
	Keeping []survey.Keeping
	Guarded bool
	Whole   bool // it has the data that needs a look at every checkpoint: the logical bytes and the forecast
}

type agentRow struct {
	ckpt.Agent
	Share   float64
	Logical string
	Keeps   string
	Budget  string
	Href    string
	Policy  string // the address of the form of its policy
	Prune   string // the address of the form that applies the policy
}

// mostPolicies is how many agents' policies the storage page reads.
const mostPolicies = 40

// storage draws what uses the storage. The logical bytes and the forecast need a look at
// every checkpoint, so the page comes without them, and its script requests them
// afterwards.
func (c *Console) storage(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	st := c.pulse.now() // while a person looks, it is at most two seconds old
	if st == nil {
		var err error
		if st, err = c.daemon.all().Status(ctx); err != nil {
			c.trouble(w, r, err)
			return
		}
	}
	whole := r.URL.Query().Has("whole")
	page, err := c.daemon.all().Agents(ctx, ckpt.AgentFilter{Limit: 200, States: whole})
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	policies := make([]*ckpt.Policy, 0, mostPolicies)
	for _, a := range page.Agents[:min(len(page.Agents), mostPolicies)] {
		p, err := c.daemon.of(a.Owner).Policy(ctx, a.Agent)
		if err != nil {
			c.trouble(w, r, err)
			return
		}
		policies = append(policies, p)
	}
	var forecast *survey.Forecast
	if whole {
		if forecast, err = c.daemon.all().Forecast(ctx, survey.ForecastQuery{}); err != nil {
			c.trouble(w, r, err)
			return
		}
	}
	v := viewStorage(c.frameOf(r, "Storage", "storage"), st, page, policies, forecast)
	v.sparks(c.pulse)
	c.show(w, r, http.StatusOK, "storage", v)
}

// viewStorage sorts agents by their stored bytes. The forecast is nil if the page comes
// without the data that needs a look at every checkpoint.
func viewStorage(f frame, st *ckpt.Status, page *ckpt.AgentPage, policies []*ckpt.Policy, forecast *survey.Forecast) *storageView {
	v := &storageView{frame: f, Whole: forecast != nil}
	most := int64(1)
	for _, a := range page.Agents {
		most = max(most, a.StoredBytes)
	}
	for i, a := range page.Agents {
		names := url.Values{"owner": {a.Owner}, "agent": {a.Agent}}.Encode()
		row := agentRow{
			Agent: a, Share: float64(a.StoredBytes) / float64(most), Budget: "no budget", Href: f.Base + "runs?agent=" + url.QueryEscape(a.Agent),
			Policy: f.Base + "ask/policy?" + names, Prune: f.Base + "ask/prune?" + names,
		}
		if a.StateBytes != nil {
			row.Logical = draw.Bytes(*a.StateBytes)
		}
		if i < len(policies) {
			row.Keeps, row.Budget = keepsText(policies[i]), budgetText(a.StoredBytes, policies[i].MaxBytes)
		}
		v.Agents = append(v.Agents, row)
	}
	slices.SortStableFunc(v.Agents, func(a, b agentRow) int { return cmp.Compare(b.StoredBytes, a.StoredBytes) })
	kept := int64(0)
	for _, n := range st.Counts {
		kept += n
	}
	v.Tiles = []tile{
		{"Stored", draw.Plural(int(st.Agents), "agent"), draw.Bytes(st.Stored), "", ""},
		{"Checkpoints", draw.Plural(int(st.Runs), "run"), draw.Count(kept), "", ""},
		adminOnly(st, tile{"Database file", "", draw.Bytes(st.Database.Bytes), "journal " + draw.Bytes(st.Database.WALBytes), ""}),
		adminOnly(st, tile{"Free in the file", "", draw.Bytes(st.Database.FreeBytes), "to be used again", ""}),
		{"Removed by age or budget", "since its start", draw.Count(st.Worker.Removed), "checkpoints", ""},
	}
	if forecast != nil {
		v.Going, v.More = goingRows(f, forecast)
		v.Keeping, v.Guarded = forecast.Keeping, forecast.Guarded
	}
	return v
}

// sparks draws how the first two totals changed while the console ran.
func (v *storageView) sparks(p *pulse) {
	v.Tiles[0].Spark = draw.Spark(p.series(func(b bucket) float64 { return b.stored }))
	v.Tiles[1].Spark = draw.Spark(p.series(func(b bucket) float64 { return b.kept }))
}

func keepsText(p *ckpt.Policy) string {
	routine := "all"
	if p.RoutineKeep > 0 {
		routine = draw.Count(p.RoutineKeep)
	}
	return routine + " · " + p.RecoveryKeep.String() + " · " + p.EndedKeep.String()
}

func budgetText(stored, most int64) string {
	if most == 0 {
		return "no budget"
	}
	return draw.Bytes(most) + " · " + draw.Percent(float64(stored)/float64(most))
}

// auditView shows the audit log, newest first.
type auditView struct {
	frame
	Rows    []auditRow
	Filters []filter
	Anchor  string
	Count   int64
	SQL     string
	Older   string
	Newer   string
}

type auditRow struct {
	ckpt.AuditRow
	Href, Of, Why string
}
