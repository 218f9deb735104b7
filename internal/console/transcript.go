package console

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// transcriptView is a page of what a run did, step by step.
type transcriptView struct {
	frame
	Page, At       string // At is the key of the step that the address names
	Status         draw.Badge
	Rows           []transcriptRow
	Causes         []causeRow
	Failed         bool
	Whole          bool // it shows one step with all of its texts
	Follows        bool // new steps come at the end
	Masked         bool
	Earlier, Later string // addresses of the pages before and after
	Newest, All    string
	Show           string // the address that shows secrets
}

// transcriptRow is a step, or an event that the run reported.
type transcriptRow struct {
	ID, Href, Name, Key string
	At                  ckpt.Time
	Class, Icon, Word   string
	Took, Tokens, Cost  string
	Attempt             int64
	Event, Chosen       bool
	Texts               []stepText
}

// stepText is a text of a step. Less is its beginning, if it is long.
type stepText struct{ Name, Class, ID, Less, Text, More string }

type causeRow struct {
	survey.StepCause
	Href, What string
}

// wholeText is how many characters of each text a page of one step shows.
const wholeText = 64 << 10

func (c *Console) transcript(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	line, ref, run, err := c.runOf(r)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	f := survey.TranscriptQuery{At: q.Get("at"), Before: q.Get("before"), After: q.Get("after"), From: momentOf(q.Get("from")), Failed: q.Get("hide") == "ok"}
	if q.Has("whole") {
		f.Text, f.Limit = wholeText, 1
	}
	page, err := line.Transcript(r.Context(), ref, f)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	var hide []string
	if q.Get("show") != "secrets" {
		if hide, err = textSecrets(r.Context(), line, ref); err != nil {
			c.trouble(w, r, err)
			return
		}
	}
	fr := c.frameOf(r, run.Agent+" / "+run.Run, "runs")
	fr.Live, fr.Of, fr.Crumb = livePace, ofRun(run.Owner, run.Agent, run.Run), run.Owner
	c.show(w, r, http.StatusOK, "transcript", viewTranscript(fr, run, page, f, hide, q))
}

// textSecrets returns the places in steps, events and operations where findings report secrets.
func textSecrets(ctx context.Context, line client.Operator, ref ckpt.RunRef) ([]string, error) {
	return placesOfSecrets(ctx, line, ref, "step", "event", "operation")
}

// placesOfSecrets is secretPaths of all findings of a run.
func placesOfSecrets(ctx context.Context, line client.Operator, ref ckpt.RunRef, in ...string) ([]string, error) {
	drift, err := line.Drift(ctx, ckpt.DriftFilter{Agent: ref.Agent, Run: ref.Run, All: true, Limit: ckpt.MaxLimit})
	if err != nil {
		return nil, err
	}
	findings, err := allSecrets(ctx, line, ref, drift)
	return secretPaths(findings, in...), err
}

// viewTranscript arranges a page of steps. hide has the places of secrets.
func viewTranscript(f frame, run *ckpt.Run, page *survey.Transcript, asked survey.TranscriptQuery, hide []string, q url.Values) *transcriptView {
	v := &transcriptView{frame: f, Page: runPath(f.Base, run.Owner, run.Agent, run.Run), At: asked.At, Status: draw.StatusBadge(run.Status), Failed: asked.Failed, Whole: q.Has("whole")}
	v.Head = "Transcript of " + f.Title
	v.Follows = !page.Later && run.Status.Resumable() && !v.Whole
	address := func(name, value string) string {
		to := url.Values{}
		if name != "" {
			to.Set(name, value)
		}
		if v.Failed {
			to.Set("hide", "ok")
		}
		return v.Page + "/steps?" + to.Encode()
	}
	if n := len(page.Steps); n > 0 && !v.Whole {
		if page.Earlier {
			v.Earlier = address("before", page.Steps[0].Key)
		}
		if page.Later {
			v.Later, v.Newest = address("after", page.Steps[n-1].Key), address("", "")
		}
	}
	shown := maps.Clone(q)
	shown.Set("show", "secrets")
	v.Show, v.All = v.Page+"/steps?"+shown.Encode(), address("", "")
	for i := range page.Steps {
		v.Rows = append(v.Rows, v.stepRow(&page.Steps[i], hide))
	}
	for i := range page.Events {
		v.Rows = append(v.Rows, v.eventRow(&page.Events[i], hide))
	}
	slices.SortStableFunc(v.Rows, func(a, b transcriptRow) int { return a.At.Compare(b.At.Time) })
	for _, cause := range page.Causes {
		v.Causes = append(v.Causes, causeRow{cause, stepPath(v.Page, cause.Key), draw.FirstLine(cmp.Or(cause.Error, cause.Name+" failed"), 200)})
	}
	return v
}

// stepPath returns the address of a step in the transcript of its run.
func stepPath(page, key string) string {
	return page + "/steps?at=" + url.QueryEscape(key) + "#" + draw.StepID(key)
}

// stepWords say how a step ended.
var stepWords = map[ckpt.StepStatus]draw.Badge{
	ckpt.StepSucceeded: {Icon: "done", Word: "succeeded"}, ckpt.StepFailed: {Class: "crit", Icon: "lost", Word: "failed"},
	ckpt.StepStarted: {Class: "live", Icon: "live", Word: "is being done"}, ckpt.StepInterrupted: {Class: "crit", Icon: "unc", Word: "was interrupted"},
}

func (v *transcriptView) stepRow(s *survey.TranscriptStep, hide []string) transcriptRow {
	b := stepWords[s.Status]
	row := transcriptRow{ID: draw.StepID(s.Key), Href: stepPath(v.Page, s.Key), Name: draw.FirstLine(s.Name, 80), Key: draw.FirstLine(s.Key, 80),
		At: s.StartedAt, Class: b.Class, Icon: b.Icon, Word: b.Word, Attempt: s.Attempt, Chosen: s.Key == v.At}
	if s.Outcome != "" {
		row.Word += ", the answer was no"
	}
	if s.DurationMS != nil {
		row.Took = tookText(*s.DurationMS)
	}
	if s.InputTokens != nil || s.OutputTokens != nil {
		row.Tokens = draw.ShortCount(amount(s.InputTokens)+amount(s.OutputTokens)) + " tokens"
	}
	if s.CostUSD != nil && *s.CostUSD > 0 {
		row.Cost = draw.Dollars(*s.CostUSD)
	}
	whole := ""
	if !v.Whole {
		whole = v.Page + "/steps?whole&at=" + url.QueryEscape(s.Key)
	}
	v.text(&row, "args", "", s.Args, s.ArgsSize, hide, whole)
	v.text(&row, "result", "", s.Result, s.ResultSize, hide, whole)
	v.text(&row, "error", "crit", s.Error, s.ErrorSize, hide, whole)
	return row
}

func amount(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// tookText writes how long a step took.
func tookText(ms int64) string {
	switch {
	case ms < 1000:
		return strconv.FormatInt(ms, 10) + " ms"
	case ms < 60_000:
		return strconv.FormatFloat(float64(ms)/1000, 'f', 1, 64) + " s"
	}
	return draw.Age(time.Duration(ms) * time.Millisecond)
}

func (v *transcriptView) eventRow(e *survey.HeardEvent, hide []string) transcriptRow {
	row := transcriptRow{ID: "event-" + strconv.FormatInt(e.Seq, 10), Name: draw.FirstLine(e.Type, 80), At: e.At, Icon: "doc", Event: true}
	v.text(&row, "payload", "", e.Payload, e.Size, hide, "")
	return row
}

// lessText is how many characters of a text are visible before it is unfolded.
const lessText = 240

// text adds a text of a step to its row. size is that of the whole text.
func (v *transcriptView) text(row *transcriptRow, name, class, raw string, size int64, hide []string, whole string) {
	if size == 0 {
		return
	}
	cut := int64(len([]rune(raw))) < size
	text, masked := stepTextOf(name, raw, cut, hide)
	v.Masked = v.Masked || masked
	t := stepText{Name: map[string]string{"args": "arguments"}[name], Class: class, ID: row.ID + "-" + name, Text: text}
	t.Name = cmp.Or(t.Name, name)
	if cut {
		t.Text += " …"
		if t.More = whole; whole == "" {
			t.Text += " " + draw.Count(size) + " characters in all"
		}
	}
	if runes := []rune(text); len(runes) > lessText && !v.Whole {
		t.Less = draw.FirstLine(text, lessText)
	}
	row.Texts = append(row.Texts, t)
}

// stepTextOf returns a text for people, without the values at the places of secrets. Nobody can find the places in the
// beginning of a JSON text, so all of it is hidden.
func stepTextOf(name, raw string, cut bool, hide []string) (text string, hidden bool) {
	var secrets []string
	for _, path := range hide {
		rest, is := strings.CutPrefix(path+"/", "/"+name+"/")
		if !is {
			continue
		}
		var value any
		if cut || json.Unmarshal([]byte(raw), &value) != nil {
			return "••••••••", true
		}
		rest = strings.TrimSuffix(rest, "/")
		if rest != "" {
			rest = "/" + rest
		}
		secrets = append(secrets, texts(lookUp(value, rest))...)
	}
	text = maskedJSON(raw, secrets)
	if cut {
		text = beginning(raw)
	}
	return strings.TrimSpace(text), text != raw && len(secrets) > 0
}

// beginning reads the beginning of a JSON text. If it is that of a string, the characters of the string are returned.
func beginning(raw string) string {
	if strings.HasPrefix(raw, `"`) {
		for cut := 0; cut < 12 && cut < len(raw); cut++ { // an escape may be cut
			var s string
			if json.Unmarshal([]byte(raw[:len(raw)-cut]+`"`), &s) == nil {
				return s
			}
		}
	}
	return raw
}
