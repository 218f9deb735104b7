package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// runView is the page of a run.
type runView struct {
	frame
	Run        *ckpt.Run
	Page       string
	Status     draw.Badge
	Goal       string
	Facts      []fact
	Rec        template.HTML
	Scale      string // the positions of moments on the axis, for the script
	Binned     bool
	Zoom       zoom
	AsTable    bool
	Table      *recTable
	Picked     *picked
	Plan       *planView
	Parent     *parentView // what it was forked from; nil for nothing
	Questions  []needRow
	Findings   []findingRow
	OpenCount  int
	Ended      string // how it ended, if it did
	DismissAll string
}

type fact struct {
	Name, Value, Small string
	Href, SmallHref    string // what the value and the small text link to
	Bar                template.HTML
}

// zoom has the links that change the view, for browsers without the script.
type zoom struct{ In, Out, All string }

// picked is the chosen checkpoint.
type picked struct {
	Checkpoint *ckpt.Checkpoint
	Page, Base string
	Form       string // the query that identifies it in forms
	Against    []option
	AgainstID  string
	Groups     []diffGroup
	MoreDiff   int
	NoDiff     string
	Tree       *node
	NoTree     string
	Masked     bool
	Before     string
	After      string
	ReadOnly   bool
	View       string // the address that shows the state part by part; "" if it is not JSON
}

// Ask returns the address of a form about the checkpoint.
func (p *picked) Ask(what string) string { return p.Base + "ask/" + what + "?" + p.Form }

// findingRow is a finding in a list.
type findingRow struct {
	Class, Icon, Rule, Message, Closed string
	At                                 ckpt.Time
	Dismiss                            string
}

// runTag identifies the content of a run's page without reading all of it. It uses the
// line of the run in the overview, which the console has anyway.
func (c *Console) runTag(r *http.Request) (whole, line string) {
	o, err := c.daemon.overview(r.Context())
	if err != nil {
		return "", ""
	}
	c.pulse.setNeeds(int(needsOf(o)))
	for i := range o.Runs {
		line := &o.Runs[i]
		if line.Owner != r.PathValue("owner") || line.Agent != r.PathValue("agent") || line.Run != r.PathValue("run") {
			continue
		}
		copied := *line
		copied.WorkedMS = 0 // it grows with time
		text, err := json.Marshal(copied)
		if err != nil {
			return "", ""
		}
		sum := sha256.Sum256(append(text, r.URL.RawQuery+strconv.Itoa(c.pulse.needs())...))
		return `"r` + hex.EncodeToString(sum[:8]) + `"`, hash(text)
	}
	return "", ""
}

// refOf returns the run that an address names, and the connection to its owner's agents.
func (c *Console) refOf(r *http.Request) (line client.Operator, ref ckpt.RunRef, err error) {
	ref = ckpt.RunRef{Agent: r.PathValue("agent"), Run: r.PathValue("run")}
	return c.daemon.of(r.PathValue("owner")), ref, ref.Check()
}

// runOf reads the run that an address names.
func (c *Console) runOf(r *http.Request) (line client.Operator, ref ckpt.RunRef, run *ckpt.Run, err error) {
	if line, ref, err = c.refOf(r); err != nil {
		return line, ref, nil, err
	}
	run, err = line.Run(r.Context(), ref)
	if err == nil && run.Owner != r.PathValue("owner") {
		err = ckpt.Errorf(ckpt.CodeNotFound, "there is no such run")
	}
	return line, ref, run, err
}

// run draws the page of a run.
func (c *Console) run(w http.ResponseWriter, r *http.Request) {
	tag, same := c.runTag(r)
	if tag != "" && r.Header.Get(headerLive) != "" && r.Header.Get("If-None-Match") == tag {
		w.Header().Set("ETag", tag)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	q := r.URL.Query()
	line, ref, run, err := c.runOf(r)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	rec, err := c.recorder(r.Context(), line, run, recorderQuery(q), same)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	drift, err := line.Drift(r.Context(), ckpt.DriftFilter{Agent: ref.Agent, Run: ref.Run, All: true, Limit: 200})
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	f := c.frameOf(r, run.Agent+" / "+run.Run, "runs")
	f.Live, f.Of, f.Now, f.Crumb = livePace, ofRun(run.Owner, run.Agent, run.Run), rec.At, run.Owner
	v := viewRun(f, run, rec, drift, q)
	findings, err := allSecrets(r.Context(), line, ref, drift)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	if v.Picked, err = c.pick(r.Context(), line, run, rec, secretPaths(findings), q, f); err != nil {
		c.trouble(w, r, err)
		return
	}
	chosen := ""
	if v.Picked != nil {
		chosen = v.Picked.Checkpoint.ID
	}
	v.drawRecorder(rec, chosen, q)
	if v.Parent, err = parentOf(r.Context(), line, f.Base, run); err != nil {
		c.trouble(w, r, err)
		return
	}
	if waitsForAgent(run, rec, v.Picked) {
		v.Plan = viewBegin(run, v.Parent)
		for i := range v.Facts {
			if v.Facts[i].Name == "Worked" {
				v.Facts[i].Value, v.Facts[i].Small = "not yet", ""
			}
		}
	} else if v.Plan, err = c.plan(r.Context(), line, run, rec, f.ReadOnly, f.Base); err != nil {
		c.trouble(w, r, err)
		return
	}
	text, err := c.pages.draw("run", v)
	if err != nil {
		c.options.Log(err)
		refuse(w, http.StatusInternalServerError, "The page cannot be drawn.")
		return
	}
	if tag != "" {
		w.Header().Set("ETag", tag)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text)
}

// recorderLasts is how long the console keeps a recorder that was read. A pin by somebody else is seen after that.
const recorderLasts = 10 * time.Second

// recorder reads a run's recorder. Whoever steps through the checkpoints of a long run gets the same one, as long as the
// line of the run in the overview is the same.
func (c *Console) recorder(ctx context.Context, line client.Operator, run *ckpt.Run, f survey.RecorderQuery, tag string) (*survey.Recorder, error) {
	key := fmt.Sprint(runKey(run.Owner, run.Agent, run.Run), f, tag)
	now := c.options.Now()
	if rec := c.daemon.keptRecorder(key, now); rec != nil {
		return rec, nil
	}
	rec, err := line.Recorder(ctx, ckpt.RunRef{Agent: run.Agent, Run: run.Run}, f)
	if err == nil && tag != "" {
		c.daemon.keepRecorder(key, rec, now)
	}
	return rec, err
}

// allSecrets returns the findings that report the secrets of a run. A run can have more
// findings than its page lists.
func allSecrets(ctx context.Context, line client.Operator, ref ckpt.RunRef, drift *ckpt.DriftReport) ([]ckpt.Finding, error) {
	if len(drift.Secrets) < ckpt.MaxFindings {
		return drift.Secrets, nil
	}
	f := survey.FindingsQuery{Agent: ref.Agent, Run: ref.Run, Rule: ckpt.RuleSecret, Closed: true, Limit: ckpt.MaxLimit}
	var all []ckpt.Finding
	for {
		page, err := line.Findings(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Findings...)
		if f.Before = string(page.Next); f.Before == "" {
			return all, nil
		}
	}
}

// laneBins is the most marks of a lane, which keeps the page small.
const laneBins = 220

// recorderQuery reads the view from the address: milliseconds since 1970.
func recorderQuery(q url.Values) (r survey.RecorderQuery) {
	r.From, r.To = momentOf(q.Get("from")), momentOf(q.Get("to"))
	if !r.From.IsZero() && !r.To.IsZero() && !r.From.Before(r.To.Time) {
		r = survey.RecorderQuery{}
	}
	r.Bins = laneBins
	return r
}

func momentOf(text string) ckpt.Time {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 || ms > 1<<45 {
		return ckpt.Time{}
	}
	return ckpt.At(time.UnixMilli(ms))
}

// viewRun fills the header and the parts next to the recorder.
func viewRun(f frame, run *ckpt.Run, rec *survey.Recorder, drift *ckpt.DriftReport, q url.Values) *runView {
	v := &runView{
		frame: f, Run: run, Page: runPath(f.Base, run.Owner, run.Agent, run.Run), Status: draw.StatusBadge(run.Status),
		Goal: draw.FirstLine(string(run.Goal), 400), AsTable: q.Get("as") == "table",
	}
	v.Facts = factsOf(run, rec, v.Page)
	if !run.Status.Resumable() {
		v.Ended = draw.FirstLine(string(run.Error), 600)
		if v.Ended == "" && len(run.Result) > 0 && string(run.Result) != "null" {
			v.Ended = cutValue(string(run.Result), nil)
		}
	}
	who := url.Values{"owner": {run.Owner}, "agent": {run.Agent}, "run": {run.Run}}.Encode()
	for i, all := 0, slices.Concat(drift.Findings, drift.Secrets); i < len(all); i++ {
		x := &all[i]
		row := findingRow{Rule: x.Rule, Message: draw.FirstLine(x.Message, 240), At: x.At, Closed: string(x.Closed)}
		b := draw.SeverityBadge(x.Severity)
		row.Class, row.Icon = b.Class, b.Icon
		if x.Closed == "" {
			v.OpenCount++
			row.Dismiss = f.Base + "ask/dismiss?" + who + "&finding=" + x.ID
		} else {
			row.Class, row.Icon = "m", "warn"
		}
		if len(v.Findings) < 12 {
			v.Findings = append(v.Findings, row)
		}
	}
	if v.OpenCount > 1 {
		v.DismissAll = f.Base + "ask/dismiss?" + who + "&all=1"
	}
	return v
}

func factsOf(run *ckpt.Run, rec *survey.Recorder, page string) []fact {
	owner := fact{Name: "Owner", Value: "none known"}
	if run.PID != 0 {
		owner.Value = "process " + strconv.Itoa(run.PID)
		if run.Status != ckpt.RunRunning {
			owner.Small = "gone"
		}
	}
	if run.Source != "" {
		owner.Small = "observed"
	}
	facts := []fact{
		owner,
		{Name: "Attempts", Value: draw.Count(run.Attempt), Small: "epoch " + draw.Count(run.Epoch)},
		{
			Name: "Worked", Value: draw.Age(time.Duration(rec.Sums.WorkedMS) * time.Millisecond),
			Small: "of " + draw.Age(rec.Ended.Sub(rec.Began.Time)),
		},
	}
	if run.Progress != nil {
		facts = append(facts, fact{Name: "Progress", Value: draw.Percent(*run.Progress), Bar: draw.Bar(*run.Progress, 56)})
	} else {
		facts = append(facts, fact{Name: "Progress", Value: "—"})
	}
	return append(facts,
		fact{Name: "Steps", Value: draw.Count(rec.Sums.Steps), Small: draw.Count(rec.Sums.Failed) + " failed", Href: page + "/steps", SmallHref: page + "/steps?hide=ok"},
		fact{Name: "Tokens", Value: draw.ShortCount(rec.Sums.InputTokens + rec.Sums.OutputTokens)},
		fact{Name: "Cost", Value: draw.Dollars(rec.Sums.CostUSD)},
		fact{Name: "Stored", Value: draw.Bytes(rec.Sums.StoredBytes), Small: draw.Plural(int(rec.Sums.Checkpoints), "checkpoint")},
	)
}

// drawRecorder draws the recorder, or writes it as a table.
func (v *runView) drawRecorder(rec *survey.Recorder, chosen string, q url.Values) {
	to := rec.To
	if to.IsZero() {
		to = rec.At
	}
	from := rec.From
	if q.Get("from") == "" && q.Get("to") == "" {
		// Leave some room, so that no mark is on the edge.
		room := max(to.Sub(from.Time)/80, time.Second)
		from, to = ckpt.At(from.Add(-room)), ckpt.At(to.Add(room))
	}
	l := draw.NewTimeline(from, to, rec.Segments)
	v.Binned = len(rec.Checkpoints.Bins)+len(rec.Steps.Bins)+len(rec.Operations.Bins)+len(rec.Findings.Bins) > 0
	v.Zoom = zoomLinks(v.Page, l, rec, chosen)
	if v.AsTable {
		v.Table = tableOf(rec, v.Page)
		return
	}
	v.Rec = draw.Recorder(rec, l, v.Page, chosen)
	text, _ := json.Marshal(l.Points())
	v.Scale = string(text)
}

// zoomLinks returns the links that change the view around the chosen checkpoint, or
// around the middle.
func zoomLinks(page string, l *draw.Timeline, rec *survey.Recorder, chosen string) zoom {
	middle := .5
	for i := range rec.Checkpoints.Marks {
		if rec.Checkpoints.Marks[i].ID == chosen {
			middle = l.At(rec.Checkpoints.Marks[i].CreatedAt)
		}
	}
	link := func(from, to ckpt.Time) string {
		q := url.Values{}
		if chosen != "" {
			q.Set("cp", chosen)
		}
		if !from.IsZero() {
			q.Set("from", strconv.FormatInt(from.UnixMilli(), 10))
			q.Set("to", strconv.FormatInt(max(to.UnixMilli(), from.UnixMilli()+100), 10))
		}
		return page + "?" + q.Encode()
	}
	half := .35
	in := link(l.Back(middle-half*middle*2), l.Back(middle+half*(1-middle)*2))
	from, to := l.Ends()
	span := to.Sub(from.Time) / 3
	out := link(ckpt.At(from.Add(-span)), ckpt.At(to.Add(span)))
	return zoom{In: in, Out: out, All: link(ckpt.Time{}, ckpt.Time{})}
}

// recTable is the recorder as a table.
type recTable struct {
	Rows    []recRow // the newest first
	Earlier string   // how many rows are left out; "" for none
}

type recRow struct {
	At         ckpt.Time
	What, Name string
	How, Href  string
}

// mostRows is how many rows the table of a recorder has.
const mostRows = 400

func tableOf(rec *survey.Recorder, page string) *recTable {
	t := &recTable{}
	add := func(at ckpt.Time, what, name, how, href string) {
		t.Rows = append(t.Rows, recRow{at, what, name, how, href})
	}
	for _, s := range rec.Segments {
		add(s.From, "segment begins", "attempt "+draw.Count(s.Attempt), "", "")
		if !s.To.IsZero() {
			add(s.To, "segment ends", "attempt "+draw.Count(s.Attempt), draw.Dashes(s.How), "")
		}
	}
	for _, s := range rec.Steps.Marks {
		how := string(s.Status)
		if s.Error != "" {
			how += ": " + draw.FirstLine(s.Error, 120)
		}
		add(s.StartedAt, "step "+draw.FirstLine(s.Name, 40), draw.FirstLine(s.Key, 80), how, stepPath(page, s.Key))
	}
	for _, o := range rec.Operations.Marks {
		add(o.StartedAt, "operation", draw.FirstLine(o.Name, 80), string(o.Status), "")
	}
	for _, c := range rec.Checkpoints.Marks {
		how := draw.Bytes(c.Size)
		if c.Suspect {
			how += ", suspect"
		}
		add(c.CreatedAt, "checkpoint, "+draw.KindWord(c.Kind), draw.Count(c.Seq), how, page+"?cp="+c.ID)
	}
	for _, x := range rec.Findings.Marks {
		how := string(x.Severity)
		if x.Closed != "" {
			how += ", " + draw.Dashes(string(x.Closed))
		}
		add(x.At, "finding", x.Rule, how, "")
	}
	bin := func(i int, what string, count int64, how string) {
		add(ckpt.At(rec.From.Add(time.Duration(i)*time.Duration(rec.BinMS)*time.Millisecond)), what+", together", draw.Count(count), how, "")
	}
	for _, b := range rec.Steps.Bins {
		bin(b.I, "steps", b.Count, draw.Count(b.Failed)+" failed")
	}
	for _, b := range rec.Operations.Bins {
		bin(b.I, "operations", b.Count, draw.Count(b.Failed)+" failed, "+draw.Count(b.Uncertain)+" uncertain")
	}
	for _, b := range rec.Checkpoints.Bins {
		bin(b.I, "checkpoints", b.Routine+b.PreOperation+b.Recovery, draw.Count(b.Suspect)+" suspect")
	}
	for _, b := range rec.Findings.Bins {
		bin(b.I, "findings", b.Count, draw.Count(b.Open)+" open, the worst "+string(b.Worst))
	}
	slices.SortStableFunc(t.Rows, func(a, b recRow) int { return b.At.Compare(a.At.Time) })
	if n := len(t.Rows) - mostRows; n > 0 {
		t.Rows, t.Earlier = t.Rows[:mostRows], draw.Plural(n, "earlier row")
	}
	return t
}

// pick reads the chosen checkpoint, its state, and its differences. Without a choice, it
// takes the newest checkpoint.
func (c *Console) pick(ctx context.Context, line client.Operator, run *ckpt.Run, rec *survey.Recorder,
	secrets []string, q url.Values, f frame) (*picked, error) {
	marks := rec.Checkpoints.Marks
	var cp *ckpt.Checkpoint
	var err error
	switch {
	case q.Get("cp") != "":
		cp, err = line.Checkpoint(ctx, q.Get("cp"), false)
	case rec.Sums.Checkpoints == 0:
		return nil, nil
	case len(marks) > 0:
		cp, err = line.Checkpoint(ctx, newest(marks), false)
	default:
		cp, err = line.Latest(ctx, ckpt.CheckpointFilter{Agent: run.Agent, Run: run.Run}, false)
	}
	if err != nil {
		return nil, err
	}
	if cp.Agent != run.Agent || cp.Run != run.Run {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "the checkpoint is not of this run")
	}
	page := runPath(f.Base, run.Owner, run.Agent, run.Run)
	p := &picked{
		Checkpoint: cp, Page: page, Base: f.Base, ReadOnly: f.ReadOnly,
		Form: url.Values{"owner": {run.Owner}, "agent": {run.Agent}, "run": {run.Run}, "checkpoint": {cp.ID}}.Encode(),
	}
	p.neighbors(marks)
	p.against(marks, q.Get("against"))
	if ckpt.IsJSON(cp.ContentType) {
		to := url.Values{"cp": {cp.ID}}
		if p.AgainstID != "" {
			to.Set("against", p.AgainstID)
		}
		p.View = page + "/state?" + to.Encode()
	}
	var state []byte
	if ckpt.IsJSON(cp.ContentType) && cp.Size <= mostDiffState {
		if state, err = line.State(ctx, cp.ID); err != nil {
			return nil, err
		}
	}
	var hide []string
	mask := q.Get("show") != "secrets"
	if mask {
		hide = secretsIn(state, secrets)
	}
	changed := map[string]bool{}
	switch {
	case p.AgainstID == "":
		p.NoDiff = "It has nothing before it to compare with."
	case cp.Size > mostDiffState && q.Get("diff") == "":
		p.NoDiff = "The state is large: " + draw.Bytes(cp.Size) + "."
	default:
		d, err := line.Diff(ctx, p.AgainstID, cp.ID)
		if err != nil {
			p.NoDiff = messageOf(err)
			break
		}
		if mask {
			hide = append(hide, secretsInDiff(d, secrets)...)
		}
		if p.Groups, changed, p.MoreDiff = diffOf(d, hide); len(p.Groups) == 0 {
			p.NoDiff = "Nothing has changed."
		}
	}
	p.Masked = len(hide) > 0
	p.tree(state, changed, hide)
	return p, nil
}

// newest returns the last checkpoint, or the one before it if the last is a pre_operation
// checkpoint: that has the same state as the one before it.
func newest(marks []survey.CheckpointMark) string {
	at := len(marks) - 1
	if at > 0 && marks[at].Kind == ckpt.KindPreOperation {
		at--
	}
	return marks[at].ID
}

func (p *picked) tree(state []byte, changed map[string]bool, hide []string) {
	switch {
	case !ckpt.IsJSON(p.Checkpoint.ContentType):
		p.NoTree = "The state is not JSON, but " + draw.FirstLine(p.Checkpoint.ContentType, 60) + "."
	case state == nil || len(state) > mostDiffState:
		p.NoTree = "The state is too large for a page: " + draw.Bytes(p.Checkpoint.Size) + "."
	default:
		root, ok := treeOf(state, changed, hide)
		if p.Tree = &root; !ok {
			p.Tree, p.NoTree = nil, "The state cannot be read as JSON."
		}
	}
}

// neighbors finds the checkpoints before and after.
func (p *picked) neighbors(marks []survey.CheckpointMark) {
	for i := range marks {
		if marks[i].ID == p.Checkpoint.ID {
			if i > 0 {
				p.Before = marks[i-1].ID
			}
			if i+1 < len(marks) {
				p.After = marks[i+1].ID
			}
		}
	}
	if p.Before == "" && len(marks) == 0 {
		p.Before = string(p.Checkpoint.Parent)
	}
}

// against offers checkpoints to compare with: the previous one, pinned ones, the first
// one.
func (p *picked) against(marks []survey.CheckpointMark, chosen string) {
	id := p.Checkpoint.ID
	offer := func(at, label string) {
		if at == "" || at == id || slices.ContainsFunc(p.Against, func(o option) bool { return o.Value == at }) {
			return
		}
		p.Against = append(p.Against, option{Value: at, Label: label})
	}
	seq := map[string]int64{}
	for i := range marks {
		seq[marks[i].ID] = marks[i].Seq
	}
	label := func(at, what string) string {
		if n := seq[at]; n > 0 {
			return fmt.Sprintf("%d, %s", n, what)
		}
		return what
	}
	before := p.Before
	if before == "" {
		before = string(p.Checkpoint.Parent)
	}
	offer(before, label(before, "the one before"))
	offer(string(p.Checkpoint.Parent), label(string(p.Checkpoint.Parent), "its parent"))
	for i := range marks {
		if marks[i].Pinned && len(p.Against) < 8 {
			offer(marks[i].ID, label(marks[i].ID, "pinned"))
		}
	}
	if len(marks) > 0 {
		offer(marks[0].ID, label(marks[0].ID, "the first in view"))
		offer(marks[len(marks)-1].ID, label(marks[len(marks)-1].ID, "the last in view"))
	}
	if chosen != "" && ckpt.CheckID(chosen) == nil {
		offer(chosen, label(chosen, "chosen"))
	}
	for i := range p.Against {
		if p.Against[i].Chosen = p.Against[i].Value == chosen; p.Against[i].Chosen {
			p.AgainstID = chosen
		}
	}
	if p.AgainstID == "" && len(p.Against) > 0 {
		p.Against[0].Chosen, p.AgainstID = true, p.Against[0].Value
	}
}

// raw returns an unchanged state, as a file that no browser displays.
func (c *Console) raw(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if err := ckpt.CheckID(id); err != nil {
		c.trouble(w, r, err)
		return
	}
	state, err := c.daemon.of(r.PathValue("owner")).State(r.Context(), id)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="state-`+id+`.txt"`)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	_, _ = w.Write(state)
}
