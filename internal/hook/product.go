package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Product is a coding agent whose hooks this package understands.
type Product string

// The products.
const (
	ClaudeCode Product = "claude-code"
	Codex      Product = "codex"
	Gemini     Product = "gemini"
)

// Products are all products.
var Products = []Product{ClaudeCode, Codex, Gemini}

// event is what happened, independent of the product's name for it.
type event int

const (
	other event = iota // not of interest here
	sessionStarts
	promptGiven
	toolBegins
	toolEnded
	toolFailed
	compacts
	turnEnds
	subagentStarts
	subagentEnds
	sessionEnds
)

// events maps the products' names of events to what happened.
var events = map[string]event{
	"SessionStart": sessionStarts,
	"SessionEnd":   sessionEnds,

	"UserPromptSubmit": promptGiven,
	"BeforeAgent":      promptGiven,

	"PreToolUse":         toolBegins,
	"BeforeTool":         toolBegins,
	"PostToolUse":        toolEnded,
	"AfterTool":          toolEnded,
	"PostToolUseFailure": toolFailed,

	"PreCompact":  compacts,
	"PreCompress": compacts,

	"Stop":       turnEnds,
	"AfterAgent": turnEnds,

	"SubagentStart": subagentStarts,
	"SubagentStop":  subagentEnds,
}

// Input is what a hook is given. It has the members of all products together.
type Input struct {
	Event          string `json:"hook_event_name"`
	Session        string `json:"session_id"`
	Transcript     string `json:"transcript_path"`
	Folder         string `json:"cwd"`
	Source         string `json:"source"` // of a session: startup, resume, clear, compact
	Trigger        string `json:"trigger"`
	Reason         string `json:"reason"`
	Prompt         string `json:"prompt"`
	PromptResponse string `json:"prompt_response"`
	LastMessage    string `json:"last_assistant_message"`
	TurnID         string `json:"turn_id"`
	Timestamp      string `json:"timestamp"`
	Model          string `json:"model"`

	Tool         string    `json:"tool_name"`
	ToolInput    ckpt.JSON `json:"tool_input"`
	ToolResponse ckpt.JSON `json:"tool_response"`
	ToolUseID    string    `json:"tool_use_id"`
	Error        string    `json:"error"`
	Interrupt    bool      `json:"is_interrupt"`
	MCP          *struct { // of Gemini CLI
		Server string `json:"server_name"`
		Tool   string `json:"tool_name"`
	} `json:"mcp_context"`
	DurationMS *int64 `json:"duration_ms"`

	SubagentID   string `json:"agent_id"`
	SubagentType string `json:"agent_type"`
}

// Read reads what a hook is given. It ignores unknown members, because products add
// some with every release.
func Read(text []byte) (*Input, error) {
	in := new(Input)
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), in); err != nil {
		// If a member has an unexpected type, the other members still count.
		var mismatch *json.UnmarshalTypeError
		if !errors.As(err, &mismatch) {
			return nil, err
		}
	}
	if in.Event == "" || in.Session == "" {
		return nil, errors.New("this is not the input of a hook: hook_event_name or session_id is missing")
	}
	in.Prompt = withoutContext(in.Prompt)
	return in, nil
}

// The marks between which Gemini CLI puts what hooks have said, at the beginning of the prompt that it gives to hooks later.
// It escapes such marks in what hooks say.
const (
	contextBegins = "<hook_context>"
	contextEnds   = "</hook_context>"
)

// withoutContext returns the user's own prompt.
func withoutContext(prompt string) string {
	for {
		rest, is := strings.CutPrefix(strings.TrimLeft(prompt, " \n"), contextBegins)
		_, own, ends := strings.Cut(rest, contextEnds)
		if !is || !ends {
			return prompt
		}
		prompt = strings.TrimLeft(own, " \n")
	}
}

// product returns the product that was named, otherwise the one that the input must
// come from.
func (in *Input) product(named Product) Product {
	switch {
	case named != "":
		return named
	case strings.HasPrefix(in.Event, "Before"), strings.HasPrefix(in.Event, "After"), in.Event == "PreCompress", in.Timestamp != "":
		return Gemini
	case in.TurnID != "":
		return Codex
	}
	return ClaudeCode
}

// tool returns the name of a tool as patterns know it. Gemini CLI names those of MCP servers in a form of its own.
func (in *Input) tool() string {
	if in.MCP != nil && in.MCP.Tool != "" {
		return "mcp__" + in.MCP.Server + "__" + in.MCP.Tool
	}
	return in.Tool
}

// shellTools are the products' tools that run commands.
var shellTools = map[string]bool{
	"Bash": true, "PowerShell": true, // Claude Code
	"shell": true, "local_shell": true, "exec_command": true, "unified_exec": true, "shell_command": true, // Codex; Bash too
	"run_shell_command": true, // Gemini CLI
}

// command returns the command line that a tool would run. It returns false if the tool
// does not run commands.
func (in *Input) command() (string, bool) {
	if !shellTools[in.Tool] {
		return "", false
	}
	var args struct {
		Command json.RawMessage `json:"command"`
		Cmd     string          `json:"cmd"`
	}
	_ = json.Unmarshal(in.ToolInput, &args) // members of other types stay empty
	var line string
	var words []string
	switch {
	case json.Unmarshal(args.Command, &line) == nil:
		return line, true
	case json.Unmarshal(args.Command, &words) == nil:
		return strings.Join(words, " "), true
	}
	return args.Cmd, true
}

// planTools are the tools with which models keep a plan, with the member of their
// arguments that holds the plan.
var planTools = map[string]string{
	"TodoWrite": "todos", "ExitPlanMode": "plan", // Claude Code
	"update_plan": "plan",  // Codex
	"write_todos": "todos", // Gemini CLI
}

// plan returns the plan that a tool call has just written, nil for none.
func (in *Input) plan() (plan ckpt.JSON) {
	member, ok := planTools[in.Tool]
	if !ok {
		return nil
	}
	jsontext.Members(in.ToolInput, func(name string, value []byte) bool {
		if name == member {
			plan = value
		}
		return plan == nil
	})
	return plan
}

// failure says what went wrong in a tool call, "" if nothing did.
func (in *Input) failure() string {
	if events[in.Event] == toolFailed {
		switch {
		case in.Interrupt:
			return "interrupted by the user"
		case in.Error != "":
			return in.Error
		}
		return "failed"
	}
	var r struct {
		Error   json.RawMessage `json:"error"`
		IsError bool            `json:"is_error"`
		Failed  bool            `json:"isError"`
	}
	_ = json.Unmarshal(in.ToolResponse, &r) // members of other types stay empty
	var text string
	var structured struct {
		Message string `json:"message"`
	}
	switch {
	case len(r.Error) > 0 && json.Unmarshal(r.Error, &text) == nil && text != "":
		return text
	case len(r.Error) > 0 && json.Unmarshal(r.Error, &structured) == nil && structured.Message != "":
		return structured.Message
	case r.IsError, r.Failed:
		return "the tool reported a failure"
	}
	if end := in.reported(); end != nil {
		return end.why
	}
	return ""
}

// stopped reports whether a call was stopped, so that nobody knows what it did.
func (in *Input) stopped() bool {
	end := in.reported()
	return end != nil && end.status == ""
}

// reported returns how a call ended whose end the product reports without saying whether it failed: Gemini CLI has the exit
// code in the text for the model, and Codex only in its rollout, which it writes first. nil means that nothing says it.
func (in *Input) reported() *ending {
	var answer struct {
		Text string `json:"llmContent"`
	}
	if json.Unmarshal(in.ToolResponse, &answer) == nil && answer.Text != "" {
		if !shellTools[in.Tool] {
			return nil
		}
		return geminiEnd(answer.Text)
	}
	if in.TurnID != "" {
		return in.ending(Codex, in.ToolUseID)
	}
	return nil
}
