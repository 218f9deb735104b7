package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// agentForms are the forms about an agent, or about a run of an agent that need not be on this
// host. For each form, they have the page with its link.
var agentForms = map[string]struct {
	page string
	ask  func(*Console, context.Context, *subject, url.Values) (*askView, error)
}{
	"policy": {"storage", askPolicy}, "prune": {"storage", askPrune}, "claim": {"fleet", askClaim},
}

// The kinds of values of a policy.
const (
	aWord = iota
	aNumber
	aTime // a length of time
)

// policyFields are the values of a policy that have their own form fields.
var policyFields = []struct {
	name, help string
	kind       int
}{
	{"routine_keep", "how many routine checkpoints of a run stay; 0 keeps all", aNumber},
	{"recovery_keep", "how long a recovery checkpoint stays", aTime},
	{"pre_operation_keep", "how long one before an operation stays that belongs to none; 0s keeps it", aTime},
	{"ended_keep", "how long an ended run stays", aTime},
	{"lives_keep", "how many earlier lives of a run stay; 0 keeps all", aNumber},
	{"max_bytes", "budget of stored bytes; 0 for none", aNumber},
	{"sensitivity", "of the detectors: off, low, normal or high", aWord},
	{"checkpoint_interval", "a routine checkpoint is due after it; 0s for never", aTime},
	{"heartbeat_timeout", "of runs that set none themselves; 0s for none", aTime},
	{"progress_timeout", "of runs that set none themselves; 0s for none", aTime},
}

// policyView is the form for typing the values. It changes nothing: its button leads to a page
// that shows the differences.
type policyView struct {
	frame
	Agent, Owner, Tag string
	Values            []policyValue
	Rest              field
	Cancel            string
}

// policyValue is one value, with the effective value.
type policyValue struct {
	Name, Value, Help string
	Now               string // the effective value if the agent sets none
}

// restField is the form field for all values that have no field of their own.
const restField = "rest"

// ownPolicy returns what an agent's own policy sets, by name.
func ownPolicy(layers *ckpt.PolicyLayers) (map[string]json.RawMessage, error) {
	own := map[string]json.RawMessage{}
	if len(layers.Agent) == 0 {
		return own, nil
	}
	err := json.Unmarshal(layers.Agent, &own)
	if own == nil {
		own = map[string]json.RawMessage{}
	}
	return own, err
}

// policyForm draws the values that an agent's policy sets now.
func (c *Console) policyForm(w http.ResponseWriter, r *http.Request, s *subject) {
	layers, tag, err := s.line.PolicyOf(r.Context(), s.ref.Agent)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	own, err := ownPolicy(layers)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	counts, err := members(layers.Policy)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	v := policyView{frame: c.frameOf(r, "Policy of "+s.ref.Agent, "storage"), Agent: s.ref.Agent,
		Owner: r.URL.Query().Get("owner"), Tag: tag, Cancel: s.page}
	for _, p := range policyFields {
		value := policyValue{Name: p.name, Help: p.help, Now: plainJSON(counts[p.name])}
		if raw, ok := own[p.name]; ok {
			value.Value = plainJSON(raw)
		}
		v.Values = append(v.Values, value)
		delete(own, p.name)
	}
	rest, err := json.MarshalIndent(own, "", "  ")
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	v.Rest = field{ID: "p-" + restField, Name: restField, Label: "Everything else that the agent sets, as JSON", Kind: "fold", Value: editable(rest),
		Help: "An object, for example with detectors, budget, rules, schema or ignore_tools. A member that is left out is not set by the agent."}
	c.show(w, r, http.StatusOK, "policy", v)
}

// members returns the members of a value as JSON.
func members(value any) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	return all, json.Unmarshal(text, &all)
}

// askPolicy shows the differences between the policy and the typed values.
func askPolicy(_ *Console, ctx context.Context, s *subject, q url.Values) (*askView, error) {
	layers, tag, err := s.line.PolicyOf(ctx, s.ref.Agent)
	if err != nil {
		return nil, err
	}
	if tag != q.Get("tag") {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "somebody has changed the policy of %s since you opened it. Nothing was done", s.ref.Agent)
	}
	own, err := ownPolicy(layers)
	if err != nil {
		return nil, err
	}
	change := policyChange{own: own, what: survey.ForecastQuery{Agent: s.ref.Agent, Limit: 1}}
	if err := change.read(q); err != nil {
		return nil, err
	}
	if len(change.differences) == 0 {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "nothing differs from the policy as it is. Nothing was done")
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	if _, err := wellformed.ParsePolicy(text); err != nil {
		return nil, err
	}
	forecast, err := s.line.Forecast(ctx, change.what)
	if err != nil {
		return nil, err
	}
	return &askView{
		Reason: true, Do: "Change the policy", Heading: "Change the policy of " + s.ref.Agent, Intro: goesText(forecast, "With these values"),
		Fields: []field{{Kind: "told", Label: strings.Join(change.differences, "\n")}}, Hidden: []pair{{"tag", tag}, {"own", pack(string(text))}},
	}, nil
}

// policyChange compares the typed values with what the agent sets.
type policyChange struct {
	own         map[string]json.RawMessage // becomes the typed policy
	what        survey.ForecastQuery
	differences []string
}

func (c *policyChange) read(q url.Values) error {
	named := map[string]bool{}
	for _, p := range policyFields {
		named[p.name] = true
		if err := c.field(p.name, p.kind, strings.TrimSpace(q.Get(p.name))); err != nil {
			return err
		}
	}
	if !q.Has(restField) {
		return nil // a link without it changes only the values that it names
	}
	return c.rest(q.Get(restField), named)
}

// field applies the text of a form field for one value.
func (c *policyChange) field(name string, kind int, text string) error {
	was, set := c.own[name]
	if set && plainJSON(was) == text || !set && text == "" {
		return nil
	}
	if text == "" {
		c.set(name, nil)
		return nil
	}
	if _, err := ckpt.ParseDuration(text); kind == aTime && err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "%s is %q: write a length of time, for example 24h or 7d", name, draw.FirstLine(text, 40))
	}
	raw, err := valueOf(text, kind == aNumber)
	if err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "%s is %q: it is a whole number", name, draw.FirstLine(text, 40))
	}
	if err := stand(&c.what, name, raw); err != nil {
		return err
	}
	c.set(name, raw)
	return nil
}

// rest applies the object with all other values.
func (c *policyChange) rest(text string, named map[string]bool) error {
	typed := map[string]json.RawMessage{}
	text = strings.ReplaceAll(text, "\r\n", "\n") // browsers send \r\n as line ends
	if strings.TrimSpace(text) != "" {
		err := json.Unmarshal([]byte(text), &typed)
		switch {
		case !json.Valid([]byte(text)):
			return ckpt.Errorf(ckpt.CodeInvalid, "everything else is not JSON: %v", err)
		case err != nil || typed == nil:
			return ckpt.Errorf(ckpt.CodeInvalid, `everything else is not a JSON object: write one, for example {"ignore_tools": ["poll"]}`)
		}
	}
	all := maps.Clone(typed)
	for name := range typed {
		if named[name] {
			return ckpt.Errorf(ckpt.CodeInvalid, "%s has a field of its own: write it there", name)
		}
	}
	for name, was := range c.own {
		if !named[name] {
			all[name] = was
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if editable(c.own[name]) != editable(typed[name]) {
			c.set(name, typed[name])
		}
	}
	return nil
}

// set sets or removes a member, and records the difference.
func (c *policyChange) set(name string, raw json.RawMessage) {
	before, now := "not set", "not set"
	if was, set := c.own[name]; set {
		before = plainJSON(was)
	}
	if delete(c.own, name); raw != nil {
		c.own[name], now = raw, plainJSON(raw)
	}
	c.differences = append(c.differences, fmt.Sprintf("− %s: %s\n+ %s: %s", name, before, name, now))
}

// valueOf returns a typed text as JSON.
func valueOf(text string, number bool) (json.RawMessage, error) {
	if !number {
		return json.Marshal(text)
	}
	var n int64
	err := json.Unmarshal([]byte(text), &n)
	return json.RawMessage(text), err
}

// stand replaces a value of the policy in a forecast.
func stand(f *survey.ForecastQuery, name string, raw json.RawMessage) error {
	switch name {
	case "routine_keep":
		return json.Unmarshal(raw, &f.RoutineKeep)
	case "recovery_keep":
		return json.Unmarshal(raw, &f.RecoveryKeep)
	case "pre_operation_keep":
		return json.Unmarshal(raw, &f.PreOperationKeep)
	case "ended_keep":
		return json.Unmarshal(raw, &f.EndedKeep)
	case "max_bytes":
		return json.Unmarshal(raw, &f.MaxBytes)
	}
	return nil
}

// goesText describes a forecast in a sentence.
func goesText(f *survey.Forecast, with string) string {
	n := f.MoreGoing + int64(len(f.Going))
	kept := int64(0)
	for _, k := range f.Keeping {
		kept += k.Checkpoints
	}
	return fmt.Sprintf("%s, %s of the agent go now, with the next save or by age, and %s stay. %s come free at most.", with,
		draw.Plural(int(n), "checkpoint"), draw.Count(kept), draw.Bytes(f.Bytes))
}

func actPolicy(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	ctx, err := because(ctx, q)
	if err != nil {
		return done{}, err
	}
	if q.Get("tag") == "" {
		return done{}, ckpt.Errorf(ckpt.CodeInvalid, "the form does not say which policy it changes")
	}
	own := new(bytes.Buffer)
	if err := json.Compact(own, []byte(unpack(q.Get("own")))); err != nil {
		return done{}, ckpt.Errorf(ckpt.CodeInvalid, "the policy cannot be read")
	}
	p, err := s.line.ReplacePolicy(ctx, s.ref.Agent, own.Bytes(), q.Get("tag"))
	if ckpt.CodeOf(err) == ckpt.CodeConflict && q.Get("again") != "" {
		// The first attempt may have changed the policy, and with it the tag.
		if now, same := s.hasPolicy(ctx, own.Bytes()); same {
			p, err = now, nil
		}
	}
	if err != nil {
		return done{}, err
	}
	return done{fmt.Sprintf("The policy of %s is changed: it keeps %s.", s.ref.Agent, keepsText(p)), s.page}, nil
}

// hasPolicy returns the agent's policy if its own part is this one.
func (s *subject) hasPolicy(ctx context.Context, own ckpt.JSON) (now *ckpt.Policy, same bool) {
	layers, err := s.line.PolicyLayers(ctx, s.ref.Agent)
	if err != nil {
		return nil, false
	}
	wanted, err := wellformed.OwnPolicy(own)
	return &layers.Policy, err == nil && bytes.Equal(layers.Agent, wanted)
}

// mostPruned is how many checkpoints the form of a prune lists.
const mostPruned = 20

// toPrune returns the checkpoints that a prune would remove now, and a short identifier for
// the whole list.
func (s *subject) toPrune(ctx context.Context) (*ckpt.PruneReport, string, error) {
	report, _, err := s.line.Prune(ctx, ckpt.PruneRequest{Agent: s.ref.Agent, DryRun: true}, "")
	if err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(report.Removed)
	return report, hash(text), err
}

func askPrune(_ *Console, ctx context.Context, s *subject, _ url.Values) (*askView, error) {
	report, sum, err := s.toPrune(ctx)
	if err != nil {
		return nil, err
	}
	forecast, err := s.line.Forecast(ctx, survey.ForecastQuery{Agent: s.ref.Agent, Limit: 1})
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, mostPruned)
	for _, r := range report.Removed[:min(len(report.Removed), mostPruned)] {
		names = append(names, fmt.Sprintf("%s / %d: %s", r.Run, r.Seq, r.Reason))
	}
	v := &askView{
		Reason: true, Do: "Prune", Heading: fmt.Sprintf("Remove %s of %s now", draw.Plural(len(report.Removed), "checkpoint"), s.ref.Agent),
		Intro:  goesText(forecast, "By the policy as it is"),
		Hidden: []pair{{"list", sum}},
	}
	if report.Guarded {
		v.Intro += " Nothing goes by age just now: the daemon has just started or the clock jumped."
	}
	if len(names) > 0 {
		told := field{Kind: "told", Label: strings.Join(names, "\n")}
		if more := len(report.Removed) - len(names); more > 0 {
			told.Help = fmt.Sprintf("and %d more", more)
		}
		v.Fields = []field{told}
	}
	return v, nil
}

func actPrune(_ *Console, ctx context.Context, s *subject, q url.Values) (done, error) {
	ctx, err := because(ctx, q)
	if err != nil {
		return done{}, err
	}
	if q.Get("again") == "" {
		_, sum, err := s.toPrune(ctx)
		if err != nil {
			return done{}, err
		}
		if sum != q.Get("list") {
			return done{}, ckpt.Errorf(ckpt.CodeConflict, "other checkpoints would go than when this form was drawn. Nothing was done")
		}
	}
	report, replayed, err := s.line.Prune(ctx, ckpt.PruneRequest{Agent: s.ref.Agent}, q.Get("key"))
	if err != nil {
		return done{}, err
	}
	return done{fmt.Sprintf("Removed %s of %s%s.", draw.Plural(len(report.Removed), "checkpoint"), s.ref.Agent, before(replayed)), s.page}, nil
}
