package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// tool is one tool. Its input and its output are structs.
type tool[In, Out any] struct {
	name, title, description string
	reads                    bool // the tool changes nothing
	repeatable               bool // a repeated call with the same arguments has no further effect
	waits                    bool // the tool takes the lock itself, and does not hold it while it waits
	do                       func(context.Context, *In) (*Out, error)
}

// anyObject is the schema of each output in the list of tools: that list takes space in the context of every model. Tests
// check each output against the schema in s.gives.
var anyObject = json.RawMessage(`{"type":"object"}`)

// add adds a tool. None reaches further than the daemon on this machine.
func add[In, Out any](s *Server, t tool[In, Out]) {
	no := false
	s.gives[t.name] = reflect.TypeFor[Out]()
	s.mcp.AddTool(&mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description,
		InputSchema: schemaOf(reflect.TypeFor[In]()), OutputSchema: anyObject,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.reads, IdempotentHint: t.repeatable || t.reads, DestructiveHint: &no, OpenWorldHint: &no},
	}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		in := new(In)
		if err := readArguments(r.Params.Arguments, in); err != nil {
			return failed(err), nil
		}
		if !t.reads && !t.waits {
			s.turn.Lock()
			defer s.turn.Unlock()
		}
		out, err := t.do(ctx, in)
		if err != nil {
			return failed(err), nil
		}
		text, err := plainJSON(out)
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text)}, nil
	})
}

// plainJSON returns JSON for a model: without the escapes that only browsers need.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// failed returns an error result that a model can act on.
func failed(err error) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: sentence(err)}}}
}

// sentence says what went wrong and what helps.
func sentence(err error) string {
	var e *ckpt.Error
	if !errors.As(err, &e) {
		if gone(err) {
			return "The checkpoint daemon cannot be reached, so nothing was done: " + err.Error() +
				". Tell the user. The work itself can continue, and this tool works again as soon as the daemon is back."
		}
		return capitalised(err.Error())
	}
	text := e.Message
	switch {
	case e.Outcome == ckpt.OutcomeUnknown:
		text += ". It is not known whether it was done: call this tool again with the same arguments"
	case e.Retryable():
		text += ". Try again in a moment"
	}
	return capitalised(text) + "."
}

// gone reports that the daemon cannot be reached.
func gone(err error) bool {
	var nobody *client.DialError
	return errors.As(err, &nobody)
}

func capitalised(text string) string {
	if text == "" {
		return text
	}
	return string(bytes.ToUpper([]byte(text[:1]))) + text[1:]
}
