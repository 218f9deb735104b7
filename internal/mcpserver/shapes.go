package mcpserver

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// maxShownState is the largest state that an answer contains. The model must read a
// larger one as a resource.
const maxShownState = 256 << 10

// checkpoint is a checkpoint in the form that a model needs.
type checkpoint struct {
	ID      string      `json:"id" doc:"The checkpoint's id, for restore_checkpoint."`
	Run     string      `json:"run"`
	Seq     int64       `json:"seq" doc:"Its number in the run; higher is newer."`
	Kind    string      `json:"kind" doc:"routine, recovery (before a repair) or pre_operation (before something risky)."`
	Created string      `json:"created_at"`
	Size    int64       `json:"size" doc:"Bytes of the state."`
	Summary string      `json:"summary,omitempty" doc:"The summary given at the save."`
	Labels  ckpt.Labels `json:"labels,omitempty"`
	Suspect bool        `json:"suspect" doc:"Saved after the agent had begun to drift: prefer an older one."`
	Pinned  bool        `json:"pinned,omitempty"`
}

func shownCheckpoint(c *ckpt.Checkpoint) checkpoint {
	shown := checkpoint{ID: c.ID, Run: c.Run, Seq: c.Seq, Kind: string(c.Kind), Created: c.CreatedAt.String(),
		Size: c.Size, Labels: c.Labels, Suspect: c.Suspect, Pinned: c.Pinned}
	var metadata struct {
		Summary string `json:"summary"`
	}
	if json.Unmarshal(c.Metadata, &metadata) == nil {
		shown.Summary = metadata.Summary
	}
	return shown
}

// state is the state of a checkpoint, as far as it can be shown.
type state struct {
	State    ckpt.JSON `json:"state,omitempty" doc:"The saved state, exactly as it was saved."`
	Text     string    `json:"state_text,omitempty" doc:"The saved state, if it is text and not JSON."`
	Resource string    `json:"state_resource,omitempty" doc:"A resource of this server that has a state too large or too binary to show here."`
}

func shownState(c *ckpt.Checkpoint) (s state) {
	switch {
	case len(c.State) > maxShownState:
		s.Resource = checkpointURI(c.ID)
	case ckpt.IsJSON(c.ContentType):
		s.State = c.State
	case utf8.Valid(c.State):
		s.Text = string(c.State)
	default:
		s.Resource = checkpointURI(c.ID)
	}
	return s
}

// where says in words where to find a state that is not shown.
func (s state) where(c *ckpt.Checkpoint) string {
	if s.Resource != "" {
		return fmt.Sprintf(" Its state of %d bytes is not shown: read the resource %s.", c.Size, s.Resource)
	}
	return ""
}

// drift is what the detectors found, in the form that a model needs.
type drift struct {
	Verdict  string    `json:"verdict" enum:"none,info,warn,critical"`
	Advice   string    `json:"advice,omitempty" doc:"What to do now. Follow it."`
	Findings []finding `json:"findings" doc:"What was noticed; in an answer to a save or a step only what is new."`
	Secrets  []finding `json:"secrets,omitempty" doc:"What looks like a secret in what was saved. It is no drift: save it nowhere."`
	GoBackTo string    `json:"go_back_to,omitempty" doc:"The newest checkpoint from before the trouble, for restore_checkpoint."`
	Recovery string    `json:"recovery,omitempty" doc:"The checkpoint that was made of the state in trouble."`
}

type finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	Advice   string `json:"advice,omitempty"`
}

func shownDrift(v *ckpt.DriftVerdict) *drift {
	if v == nil {
		return nil
	}
	return &drift{Verdict: string(v.Verdict), Advice: string(v.Advice), Findings: shownFindings(v.Findings), Secrets: shownFindings(v.Secrets),
		GoBackTo: string(v.Clean), Recovery: string(v.Recovery)}
}

func shownFindings(found []ckpt.Finding) []finding {
	list := []finding{}
	for i := range found {
		f := &found[i]
		list = append(list, finding{f.Rule, string(f.Severity), f.Message, string(f.Advice)})
	}
	return list
}

// warning returns what a message adds about drift, "" for nothing.
func warning(v *ckpt.DriftVerdict) string {
	if v == nil || v.Verdict != ckpt.SeverityCritical && len(v.Findings) == 0 || v.Verdict == ckpt.SeverityNone {
		return ""
	}
	text := fmt.Sprintf(" Drift, %s: %s", v.Verdict, v.Advice)
	if v.Clean != "" { // checkpoints are in doubt
		text += fmt.Sprintf(" To go back, call restore_checkpoint with checkpoint %s.", v.Clean)
	}
	return text
}
