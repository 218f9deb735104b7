package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (s *Server) addPrompt() {
	s.mcp.AddPrompt(&mcp.Prompt{
		Name: "resume", Title: "Continue where the work stopped",
		Description: "Starts a session with what an earlier one left: the status, what is done, what is uncertain.",
		Arguments:   []*mcp.PromptArgument{{Name: "run", Title: "Run", Description: "The run to continue. Default: the run of this server."}},
	}, s.resumePrompt)
}

// resumePrompt only looks at the run. The run is claimed when the model calls
// resume_run.
func (s *Server) resumePrompt(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	run := s.named(r.Params.Arguments["run"])
	request := ckpt.ResumeRequest{Agent: s.agent, Run: run, PID: s.pid, DryRun: true}
	if err := request.Check(); err != nil {
		return nil, protocolError(err)
	}
	plan, _, err := s.client.Resume(ctx, request)
	if err != nil {
		return nil, protocolError(err)
	}
	shown := shownPlan(plan)
	how, err := plainJSON(shown)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("Continue run %s of agent %s. First call resume_run with run %q to take it over. Its status now:\n\n%s\n\n%s\n\n"+
		"Do not repeat what is done. Save with save_checkpoint as you continue.", run, s.agent, run, shown.Message, how)
	return &mcp.GetPromptResult{
		Description: fmt.Sprintf("Run %s of agent %s: %s", run, s.agent, plan.Verdict),
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}},
	}, nil
}
