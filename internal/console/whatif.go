package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// whatIfView compares how often the rules fired with how often they would have fired with
// other thresholds, in the recorded runs.
type whatIfView struct {
	frame
	Filters        []filter
	Rule           string
	Warn, Critical string
	Mistake        string // why it was not asked
	Policy         string // the address of the form of the policy of the agent; "" for all agents
	Asked, More    bool
	Runs           int
	Steps          int64
	Rows           []whatIfRow
}

type whatIfRow struct {
	Rule      string
	Tier      ckpt.Severity
	Now, Then int
	Outcomes  string // of the runs in which it would fire
}

// mostJudged is how many steps one question judges: this takes a second or two.
const mostJudged = 50_000

func (c *Console) whatIf(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	agents, err := c.daemon.all().Agents(r.Context(), ckpt.AgentFilter{Limit: 200})
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	v := &whatIfView{
		frame: c.frameOf(r, "What if", "drift"), Rule: strings.TrimSpace(q.Get("rule")),
		Warn: q.Get("warn"), Critical: q.Get("critical"),
	}
	v.Filters = whatIfFilters(agents, q)
	owner, agent, ok := strings.Cut(unpack(q.Get("of")), "\n")
	if ok {
		request, err := whatIfRequest(agent, q)
		if err != nil { // what was typed stays, to be corrected
			v.Mistake = messageOf(err)
			c.show(w, r, http.StatusUnprocessableEntity, "whatif", v)
			return
		}
		if agent != "" && !c.options.ReadOnly {
			v.Policy = v.Base + "ask/policy?" + url.Values{"owner": {owner}, "agent": {agent}}.Encode()
		}
		line := c.daemon.of(owner)
		now, err := line.Evaluate(r.Context(), ckpt.EvaluateRequest{Agent: agent, MaxSteps: mostJudged})
		if err != nil {
			c.trouble(w, r, err)
			return
		}
		then, err := line.Evaluate(r.Context(), request)
		if err != nil {
			c.trouble(w, r, err)
			return
		}
		v.compare(now, then)
	}
	c.show(w, r, http.StatusOK, "whatif", v)
}

func whatIfFilters(agents *ckpt.AgentPage, q url.Values) []filter {
	of := filter{Name: "of", Label: "Agent"}
	owners := map[string]bool{}
	for _, a := range agents.Agents {
		owners[a.Owner] = true
	}
	for _, owner := range sortedKeys(owners) {
		value := pack(owner + "\n")
		of.Options = append(of.Options, option{Value: value, Label: "all agents of " + owner, Chosen: value == q.Get("of")})
	}
	for _, a := range agents.Agents {
		value := pack(a.Owner + "\n" + a.Agent)
		of.Options = append(of.Options, option{Value: value, Label: a.Agent + " of " + a.Owner, Chosen: value == q.Get("of")})
	}
	sensitivity := filter{"sensitivity", "Sensitivity", []option{{Label: "sensitivity as it is"}}}
	for _, s := range []ckpt.Sensitivity{ckpt.SensitivityLow, ckpt.SensitivityNormal, ckpt.SensitivityHigh} {
		sensitivity.Options = append(sensitivity.Options, option{Value: string(s), Label: string(s), Chosen: string(s) == q.Get("sensitivity")})
	}
	return []filter{of, sensitivity}
}

// whatIfRequest reads the typed thresholds.
func whatIfRequest(agent string, q url.Values) (ckpt.EvaluateRequest, error) {
	r := ckpt.EvaluateRequest{Agent: agent, Sensitivity: ckpt.Sensitivity(q.Get("sensitivity")), MaxSteps: mostJudged}
	rule := strings.TrimSpace(q.Get("rule"))
	if rule == "" {
		return r, r.Check()
	}
	d := ckpt.Detector{}
	for _, x := range []struct {
		name string
		at   *float64
	}{{"warn", &d.Warn}, {"critical", &d.Critical}} {
		text := strings.TrimSpace(q.Get(x.name))
		if text == "" {
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return r, ckpt.Errorf(ckpt.CodeInvalid, "the threshold %s is %q: it is a number", x.name, draw.FirstLine(text, 40))
		}
		*x.at = n
	}
	r.Detectors = map[string]ckpt.Detector{rule: d}
	return r, r.Check()
}

// compare combines both answers into one table, by rule and tier.
func (v *whatIfView) compare(now, then *ckpt.Evaluation) {
	v.Asked, v.Runs, v.Steps, v.More = true, then.Runs, then.Steps, then.More
	type key struct {
		rule string
		tier ckpt.Severity
	}
	rows, outcomes := map[key]*whatIfRow{}, map[key][]string{}
	of := func(r *ckpt.EvaluatedRow) *whatIfRow {
		k := key{r.Rule, r.Tier}
		if rows[k] == nil {
			rows[k] = &whatIfRow{Rule: r.Rule, Tier: r.Tier}
			if r.Rule == "" {
				rows[k].Rule = "any rule"
			}
		}
		return rows[k]
	}
	for i := range now.Rows {
		of(&now.Rows[i]).Now += now.Rows[i].Fired
	}
	for i := range then.Rows {
		r := &then.Rows[i]
		of(r).Then += r.Fired
		if r.Fired > 0 {
			outcomes[key{r.Rule, r.Tier}] = append(outcomes[key{r.Rule, r.Tier}], draw.Count(r.Fired)+" "+r.Outcome)
		}
	}
	for k, row := range rows {
		if row.Now == 0 && row.Then == 0 && k.rule != "" {
			continue
		}
		row.Outcomes = strings.Join(outcomes[k], ", ")
		v.Rows = append(v.Rows, *row)
	}
	slices.SortFunc(v.Rows, func(a, b whatIfRow) int {
		return cmp.Or(cmp.Compare(b.Then+b.Now, a.Then+a.Now), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Tier, b.Tier))
	})
}
