package mcpserver

import (
	"context"
	"os"
	"reflect"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// New makes a server.
func New(o Options) *Server {
	s := &Server{client: o.Client, agent: o.Agent, run: o.Run, pid: o.PID, gives: map[string]reflect.Type{},
		held: map[string]int64{}, begun: map[[2]string]bool{}}
	if s.run == "" {
		s.run = ckpt.MainRun
	}
	if s.pid == 0 {
		s.pid = os.Getpid()
	}
	s.mcp = mcp.NewServer(
		&mcp.Implementation{Name: "ckptsidecar", Title: "Checkpoints that survive", Version: o.Version},
		&mcp.ServerOptions{
			Instructions: instructions,
			// Lists never change by themselves, so the server does not promise to report
			// changes.
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" }, // one user's checkpoints
			Capabilities: &mcp.ServerCapabilities{
				Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{},
				Prompts: &mcp.PromptCapabilities{},
			},
		})
	s.addCheckpointTools()
	s.addRunTools()
	s.addStepTools()
	s.addAskTool()
	s.addResources()
	s.addPrompt()
	return s
}
