package adk_test

import (
	"context"
	"iter"

	"github.com/ckptsidecar/ckptsidecar/adapters/adk"
	"github.com/ckptsidecar/ckptsidecar/client"
	"google.golang.org/adk/agent"
	"google.golang.org/adk/runner"
	"google.golang.org/adk/session"
	"google.golang.org/genai"
)

// The functions below are the snippets of docs/ADAPTERS.md. TestDocs compares
// them with the document. A child process runs them: see TestKilledAgent.

func runnerOf(root agent.Agent, sidecar *client.Client) (*runner.Runner, error) {
	service := &adk.Service{Client: sidecar}
	return runner.New(runner.Config{AppName: "adder", Agent: root, SessionService: service, AutoCreateSession: true})
}

func ask(ctx context.Context, r *runner.Runner, text string) iter.Seq2[*session.Event, error] {
	return r.Run(ctx, "user-1", "session-7", genai.NewContentFromText(text, genai.RoleUser), agent.RunConfig{})
}
