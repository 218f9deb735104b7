package mcpserver

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

func (s *Server) addCheckpointTools() {
	add(s, tool[saveIn, saveOut]{
		name: "save_checkpoint", title: "Save a checkpoint",
		description: "Save the whole state of your work durably. Use it after each piece of work that is costly to " +
			"redo, before you stop, and before your context is compacted.",
		do: s.save,
	})
	add(s, tool[listIn, listOut]{
		name: "list_checkpoints", title: "List checkpoints", reads: true,
		description: "List saved checkpoints, newest first, without states. Use it to choose one to go back to.",
		do:          s.list,
	})
	add(s, tool[restoreIn, restoreOut]{
		name: "restore_checkpoint", title: "Go back to a checkpoint", repeatable: true,
		description: "Go back to a saved state after a mistake, or when drift_status advises it. Returns the state; " +
			"deletes nothing; bring files in line yourself. " +
			"Default: the run's newest clean one.",
		do: s.restore,
	})
}

type saveIn struct {
	State   ckpt.JSON   `json:"state" type:"object" doc:"All that is needed to go on without this conversation: goal, plan, what is done, next"`
	Summary string      `json:"summary,omitempty" doc:"One sentence for lists"`
	Kind    string      `json:"kind,omitempty" enum:"routine,recovery" doc:"recovery: something went wrong. Default: routine"`
	Labels  ckpt.Labels `json:"labels,omitempty"`
	Run     string      `json:"run,omitempty"`
}

type saveOut struct {
	Message    string     `json:"message"`
	Checkpoint checkpoint `json:"checkpoint"`
	Drift      *drift     `json:"drift,omitempty"`
}

func (s *Server) save(ctx context.Context, in *saveIn) (*saveOut, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	r := &ckpt.SaveRequest{ID: id.String(), Agent: s.agent, Run: in.Run, Kind: ckpt.KindRoutine, Labels: in.Labels,
		ContentType: ckpt.ContentTypeJSON, State: in.State}
	if in.Kind != "" {
		r.Kind = ckpt.Kind(in.Kind)
	}
	if in.Summary != "" {
		if r.Metadata, err = plainJSON(map[string]string{"summary": in.Summary}); err != nil {
			return nil, err
		}
	}
	if err := wellformed.Save(r); err != nil {
		return nil, err
	}
	ref, err := s.own(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	r.Run, r.Epoch = ref.Run, ref.Epoch
	saved, err := s.client.Save(ctx, r)
	if err != nil {
		return nil, s.note(ctx, ref, err)
	}
	return &saveOut{
		Message:    fmt.Sprintf("Saved: checkpoint number %d of run %s, on disk.%s", saved.Seq, saved.Run, warning(saved.Drift)),
		Checkpoint: shownCheckpoint(&saved.Checkpoint), Drift: shownDrift(saved.Drift),
	}, nil
}

type listIn struct {
	Run    string `json:"run,omitempty" doc:"Default: all"`
	Kind   string `json:"kind,omitempty" enum:"routine,pre_operation,recovery"`
	Limit  int    `json:"limit,omitempty"`
	Before string `json:"before,omitempty" doc:"next of the last answer"`
}

type listOut struct {
	Message     string       `json:"message"`
	Checkpoints []checkpoint `json:"checkpoints"`
	Next        string       `json:"next,omitempty" doc:"There are older ones: pass this as before."`
}

const (
	listDefault = 20
	listMost    = 100
)

func (s *Server) list(ctx context.Context, in *listIn) (*listOut, error) {
	if in.Limit < 0 || in.Limit > listMost {
		return nil, fmt.Errorf("the argument limit is %d: say 1 to %d", in.Limit, listMost)
	}
	f := ckpt.CheckpointFilter{Agent: s.agent, Run: in.Run, Kind: ckpt.Kind(in.Kind), Before: in.Before, Limit: in.Limit}
	if f.Limit == 0 {
		f.Limit = listDefault
	}
	page, err := s.client.Checkpoints(ctx, f)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		page, err = &ckpt.CheckpointPage{}, nil // an agent that never saved has no checkpoints
	}
	if err != nil {
		return nil, err
	}
	out := &listOut{Checkpoints: []checkpoint{}, Next: string(page.Next)}
	for i := range page.Checkpoints {
		out.Checkpoints = append(out.Checkpoints, shownCheckpoint(&page.Checkpoints[i]))
	}
	out.Message = fmt.Sprintf("%d checkpoints of agent %s, newest first.", len(out.Checkpoints), s.agent)
	if len(out.Checkpoints) == 0 {
		out.Message = fmt.Sprintf("Agent %s has saved nothing that matches.", s.agent)
	}
	return out, nil
}

type restoreIn struct {
	Reason     string `json:"reason"`
	Checkpoint string `json:"checkpoint,omitempty"`
	Run        string `json:"run,omitempty"`
	Kind       string `json:"kind,omitempty" enum:"routine,pre_operation,recovery"`
}

type restoreOut struct {
	Message    string     `json:"message"`
	Checkpoint checkpoint `json:"checkpoint"`
	state
}

func (s *Server) restore(ctx context.Context, in *restoreIn) (*restoreOut, error) {
	r := ckpt.RestoreRequest{Agent: s.agent, Checkpoint: in.Checkpoint, Kind: ckpt.Kind(in.Kind), Reason: in.Reason}
	if in.Checkpoint == "" {
		r.Run, r.Clean = s.named(in.Run), true
	}
	found, _, err := s.client.Restore(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &restoreOut{Checkpoint: shownCheckpoint(found), state: shownState(found)}
	out.Message = fmt.Sprintf("This is the state of checkpoint number %d of run %s. Continue from it; files and other "+
		"things outside the state are as they were left.%s", found.Seq, found.Run, out.where(found))
	return out, nil
}
