package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// maxContext is the most that is said to a model at once; Claude Code cuts off
// what is longer than 10,000 characters.
const maxContext = 8 << 10

// hears are the events at which a product shows a model what a hook says. At
// others an answer would be an error, or would make the agent go on.
var hears = map[Product]map[event]bool{
	ClaudeCode: {sessionStarts: true, promptGiven: true, toolBegins: true, toolEnded: true, toolFailed: true, subagentStarts: true},
	Codex:      {sessionStarts: true, promptGiven: true, toolEnded: true},
	Gemini:     {sessionStarts: true, promptGiven: true, toolEnded: true},
}

// answer is what a hook prints so that the model reads text; nothing where
// there is nothing to say, or nobody who would hear it.
func answer(p Product, name, text string) []byte {
	if text == "" || !hears[p][events[name]] {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": name, "additionalContext": limit(text, maxContext)}})
	if err != nil {
		return nil
	}
	return b.Bytes()
}

// adviceOf is what the findings that a request has made say to a model. Each
// finding is made by one request, so each is told once.
func adviceOf(ref ckpt.RunRef, v *ckpt.DriftVerdict) string {
	if v == nil {
		return ""
	}
	var say []string
	critical := false
	for i := range v.Findings {
		f := &v.Findings[i]
		if f.Severity != ckpt.SeverityWarn && f.Severity != ckpt.SeverityCritical || f.Rule == ckpt.RuleSecret {
			continue
		}
		critical = critical || f.Severity == ckpt.SeverityCritical
		say = append(say, strings.TrimSpace(fmt.Sprintf("[ckptsidecar] Drift, %s (%s): %s %s", f.Severity, f.Rule, f.Message, f.Advice)))
	}
	if critical {
		say = append(say, "Stop what you are doing, and say to the user in one sentence what does not work before you try something else.")
		if v.Clean != "" {
			say = append(say, fmt.Sprintf("How it stood before: ckptsidecar show %s", v.Clean))
		}
	}
	return strings.Join(say, "\n")
}

// planText tells a model how a session that broke off was left.
func planText(p *ckpt.Plan, same bool) string {
	which := fmt.Sprintf("An earlier session of this project (run %s) broke off before it had ended.", p.Run)
	if same {
		which = "This session broke off before, and goes on now."
	}
	say := []string{"[ckptsidecar] " + which}
	if s := readSnapshot(p.Checkpoint); s != nil {
		say = append(say, s.told(p.Checkpoint.CreatedAt.String())...)
	}
	for i := range p.InterruptedSteps {
		step := &p.InterruptedSteps[i]
		say = append(say, fmt.Sprintf("Interrupted, result unknown: %s %s", step.Name, limit(string(step.Args), 500)))
	}
	if len(p.InterruptedSteps) > 0 {
		say = append(say, "Look whether that took effect before you do it again.")
	}
	for i := range p.UncertainOperations {
		o := &p.UncertainOperations[i]
		say = append(say, fmt.Sprintf("Risky and uncertain: %s, begun %s. Nobody knows whether it took effect: find out, do not repeat it blindly. When you know, the user can settle it: ckptsidecar operation resolve %s '%s' succeeded|failed --run %s",
			limit(o.Name, 500), o.StartedAt, p.Agent, o.Key, p.Run))
	}
	for _, skipped := range p.Skipped {
		say = append(say, fmt.Sprintf("Passed over: checkpoint number %d, %s.", skipped.Seq, skipped.Reason))
	}
	if !same {
		say = append(say, fmt.Sprintf("If the user wants to go on with that work, begin from here; ckptsidecar steps %s --run %s lists all that was done. Otherwise pass over this.", p.Agent, p.Run))
	}
	return strings.Join(say, "\n")
}

// told is what a snapshot says to a model.
func (s *Snapshot) told(at string) (say []string) {
	say = append(say, fmt.Sprintf("Last checkpoint: %s, after %d tool calls, in %s.", at, s.ToolCalls, s.Folder))
	for _, part := range [][2]string{
		{"Goal", s.Goal}, {"Last prompt", s.LastPrompt}, {"Plan", string(s.Plan)}, {"Last words", s.LastMessage}, {"Transcript", s.Transcript.Path},
	} {
		if part[1] != "" && part[1] != "null" && (part[0] != "Last prompt" || part[1] != s.Goal) {
			say = append(say, part[0]+": "+limit(part[1], 1500))
		}
	}
	if s.Git != nil {
		say = append(say, strings.TrimSpace(fmt.Sprintf("Git: commit %s %s", s.Git.Commit, s.Git.Branch)))
	}
	return say
}
