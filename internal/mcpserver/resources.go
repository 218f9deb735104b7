package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The resources: the states of the agent's checkpoints.
const (
	checkpointPrefix = "ckptsidecar://checkpoint/"
	latestPrefix     = "ckptsidecar://latest/"
	resourcePage     = 50
)

func checkpointURI(id string) string { return checkpointPrefix + id }

func (s *Server) addResources() {
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "checkpoint", Title: "A checkpoint's state", URITemplate: checkpointPrefix + "{id}",
		Description: "The state of one checkpoint, byte for byte; ids are in list_checkpoints.",
	}, s.readCheckpoint)
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "latest", Title: "The newest state of a run", URITemplate: latestPrefix + "{run}",
		Description: "The state of the run's newest checkpoint that is not suspect.",
	}, s.readLatest)
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			list, ok := r.(*mcp.ListResourcesRequest)
			if !ok {
				return next(ctx, method, r)
			}
			before := ""
			if list.Params != nil {
				before, list.Params.Cursor = list.Params.Cursor, ""
			}
			result, err := next(ctx, method, list)
			if page, ok := result.(*mcp.ListResourcesResult); ok && err == nil {
				return s.fillResources(ctx, page, before)
			}
			return result, err
		}
	})
}

// fillResources asks the daemon each time, because other sessions save too.
func (s *Server) fillResources(ctx context.Context, result *mcp.ListResourcesResult, before string) (mcp.Result, error) {
	f := ckpt.CheckpointFilter{Agent: s.agent, Limit: resourcePage, Before: before}
	page, err := s.client.Checkpoints(ctx, f)
	switch {
	case ckpt.CodeOf(err) == ckpt.CodeNotFound:
		return result, nil
	case err != nil:
		return nil, protocolError(err)
	}
	result.NextCursor = string(page.Next)
	for i := range page.Checkpoints {
		c := &page.Checkpoints[i]
		shown := shownCheckpoint(c)
		result.Resources = append(result.Resources, &mcp.Resource{
			URI: checkpointURI(c.ID), Name: fmt.Sprintf("%s-%d", c.Run, c.Seq), Title: fmt.Sprintf("Checkpoint %d of run %s", c.Seq, c.Run),
			Description: strings.TrimSpace(fmt.Sprintf("%s, saved %s. %s", c.Kind, c.CreatedAt, shown.Summary)),
			MIMEType:    c.ContentType, Size: c.Size,
		})
	}
	return result, nil
}

func (s *Server) readCheckpoint(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id, _ := strings.CutPrefix(r.Params.URI, checkpointPrefix)
	if ckpt.CheckID(id) != nil {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	c, err := s.client.Checkpoint(ctx, id, true)
	return s.contents(r.Params.URI, c, err)
}

func (s *Server) readLatest(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	run, _ := strings.CutPrefix(r.Params.URI, latestPrefix)
	if ckpt.CheckLife(run) != nil {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	clean := false
	c, err := s.client.Latest(ctx, ckpt.CheckpointFilter{Agent: s.agent, Run: run, Suspect: &clean}, true)
	return s.contents(r.Params.URI, c, err)
}

// contents returns a checkpoint as a resource. A checkpoint of another agent does not
// exist here.
func (s *Server) contents(uri string, c *ckpt.Checkpoint, err error) (*mcp.ReadResourceResult, error) {
	switch {
	case ckpt.CodeOf(err) == ckpt.CodeNotFound, err == nil && c.Agent != s.agent:
		return nil, mcp.ResourceNotFoundError(uri)
	case err != nil:
		return nil, protocolError(err)
	}
	part := &mcp.ResourceContents{URI: uri, MIMEType: c.ContentType}
	if utf8.Valid(c.State) {
		part.Text = string(c.State)
	} else {
		part.Blob = c.State
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{part}}, nil
}

// protocolError returns an error for a host, with the sentence for the model.
func protocolError(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: sentence(err)}
}
