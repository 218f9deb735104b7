package mcpserver

import (
	"context"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// named returns the run that a tool means.
func (s *Server) named(run string) string {
	if run == "" {
		return s.run
	}
	return run
}

// epoch returns the epoch of a run that this process has claimed.
func (s *Server) epoch(run string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch, ok := s.held[run]
	return epoch, ok
}

func (s *Server) hold(run string, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[run] = epoch
}

func (s *Server) letGo(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, run)
}

// own returns the run for a write. It claims a new run at once. It does not claim a run
// that an earlier session has begun: the model must first hear what is done and what is
// uncertain, and resume_run tells it.
func (s *Server) own(ctx context.Context, run string) (ckpt.RunRef, error) {
	ref := ckpt.RunRef{Agent: s.agent, Run: s.named(run)}
	if err := ref.Check(); err != nil {
		return ref, err
	}
	if epoch, ok := s.epoch(ref.Run); ok {
		ref.Epoch = &epoch
		return ref, nil
	}
	request := ckpt.ResumeRequest{Agent: s.agent, Run: ref.Run, PID: s.pid, DryRun: true, Reason: "an MCP server wants to write"}
	plan, _, err := s.client.Resume(ctx, request)
	var e *ckpt.Error
	if errors.As(err, &e) && e.Host != "" {
		return ref, ckpt.Errorf(e.Code, "nothing was done: %s. Call resume_run to bring the run here, or use another run (argument run)", e.Message)
	}
	if err != nil {
		return ref, err
	}
	if plan.Verdict != ckpt.VerdictFresh {
		return ref, mustResume(plan)
	}
	request.DryRun = false
	if plan, _, err = s.client.Resume(ctx, request); err != nil {
		return ref, err
	}
	if !plan.Claimed {
		return ref, mustResume(plan)
	}
	s.hold(ref.Run, plan.Epoch)
	ref.Epoch = &plan.Epoch
	return ref, nil
}

// mustResume returns why a run cannot be written to yet.
func mustResume(p *ckpt.Plan) error {
	if p.Verdict == ckpt.VerdictUnsafe && len(p.Skipped) == 0 {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s of agent %s belongs to another process that is still at work. Nothing was done. "+
			"Use another run (argument run). If you know that the other process is gone for good, call resume_run with force true", p.Run, p.Agent)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "run %s of agent %s was started in an earlier session. Nothing was done. "+
		"Call resume_run first: it lists what is done already and returns the state. To start something unrelated, "+
		"use another run (argument run)", p.Run, p.Agent)
}

// note notices from an error that this process no longer owns a run.
func (s *Server) note(ctx context.Context, ref ckpt.RunRef, err error) error {
	var fence *ckpt.Error
	if errors.As(err, &fence) && fence.Code == ckpt.CodeFenced {
		return s.fenced(ctx, ref, fence)
	}
	if ckpt.CodeOf(err) == ckpt.CodeConflict && s.isOver(ctx, ref) {
		s.letGo(ref.Run) // then the next write claims it again
	}
	return err
}

// fenced returns what to tell the model. Its run belongs to another process or host now, or this host's lease in the
// fleet is over, and then the run stays with this process.
func (s *Server) fenced(ctx context.Context, ref ckpt.RunRef, fence *ckpt.Error) error {
	done := "nothing was done: "
	if fence.Outcome == ckpt.OutcomeSaved {
		done = ""
	} else if s.owns(ctx, ref) {
		return ckpt.Errorf(ckpt.CodeFenced, "nothing was done: this host's lease in the fleet is over. "+
			"Run %s is still yours, and save_checkpoint works. Do nothing that must not happen twice. "+
			"Tell the user to look at `ckptsidecar fleet status`, and call this tool again when the lease is held", ref.Run)
	}
	s.letGo(ref.Run)
	return ckpt.Errorf(ckpt.CodeFenced, "%s%s. Stop working on run %s, or call resume_run to see its status", done, fence.Message, ref.Run)
}

// owns reports whether the daemon knows of no later owner of a run.
func (s *Server) owns(ctx context.Context, ref ckpt.RunRef) bool {
	run, err := s.client.Run(ctx, ref)
	return err == nil && ref.Epoch != nil && run.Epoch == *ref.Epoch && run.Ownership != ckpt.OwnershipFenced
}

// isOver reports whether a run no longer goes on under the epoch of this process. Most
// conflicts are about one step or operation.
func (s *Server) isOver(ctx context.Context, ref ckpt.RunRef) bool {
	run, err := s.client.Run(ctx, ref)
	if err != nil {
		return false
	}
	live := run.Status == ckpt.RunRunning || run.Status == ckpt.RunStarting
	return !live || ref.Epoch == nil || run.Epoch != *ref.Epoch
}
