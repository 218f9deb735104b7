package otlp

import "github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"

// mark recognizes a kind of span.
type mark struct {
	Kind      observed.Kind
	Attribute string   // "" for the span's name
	Values    []string // one of these; * stands for any text
	Root      bool     // only a span without a parent
}

// marks are tried in this order; the first match counts. All names of generative AI are still
// in development. So only this table and fields have the names for spans, as the table of
// telemetry names in internal/ipc/server has those for steps.
var marks = []mark{
	{Kind: observed.Tool, Attribute: "gen_ai.operation.name", Values: []string{"execute_tool", "tool_call"}},
	{Kind: observed.Inference, Attribute: "gen_ai.operation.name", Values: []string{"chat", "generate_content", "text_completion", "llm_call"}},
	{Kind: observed.Agent, Attribute: "gen_ai.operation.name", Values: []string{"invoke_agent", "invoke_workflow", "agent_call"}},
	{Kind: observed.Structure, Attribute: "gen_ai.operation.name", Values: []string{
		"create_agent", "plan", "embeddings", "retrieval", "*memory*", "schedule_tool_calls"}},
	{Kind: observed.Tool, Attribute: "openinference.span.kind", Values: []string{"TOOL"}},
	{Kind: observed.Inference, Attribute: "openinference.span.kind", Values: []string{"LLM"}},
	{Kind: observed.Agent, Attribute: "openinference.span.kind", Values: []string{"AGENT"}},
	{Kind: observed.Structure, Attribute: "openinference.span.kind", Values: []string{"CHAIN", "RETRIEVER"}},
	{Kind: observed.Inference, Attribute: "llm.request.type", Values: []string{"chat", "completion"}},
	{Kind: observed.Tool, Values: []string{"ai.toolCall", "claude_code.tool"}},
	{Kind: observed.Inference, Values: []string{"ai.*.doGenerate", "ai.*.doStream", "claude_code.llm_request"}},
	{Kind: observed.Agent, Values: []string{"ai.generateText", "ai.streamText"}, Root: true},
	{Kind: observed.Agent, Values: []string{"claude_code.interaction"}},
	{Kind: observed.Structure, Values: []string{
		"ai.generateText", "ai.streamText", executionSpan, "claude_code.tool.blocked_on_user"}},
}

// spanField lists the attributes that can hold a field of a Span. The first attribute present
// counts.
type spanField struct {
	Field string
	Names []string
	Of    observed.Kind // "" for all kinds
	Mark  string        // only in a span whose openinference.span.kind is this
	Name  string        // only in a span whose name begins with this
	Sum   bool          // the attributes are added up
}

// fields are all attributes of a span that are read, in addition to those in marks. Other
// attributes are never stored.
var fields = []spanField{
	{Field: "run", Names: []string{"gen_ai.conversation.id", "session.id", "ai.telemetry.metadata.sessionId"}},
	{Field: "root_agent", Names: []string{"gen_ai.agent.name"}},
	{Field: "agent", Names: []string{"agent.name"}},
	{Field: "call", Of: observed.Tool, Names: []string{
		"gen_ai.tool.call.id", "gen_ai.tool.call_id", "tool.id", "tool_call.id", "ai.toolCall.id", "tool_use_id"}},
	{Field: "name", Of: observed.Tool, Names: []string{"gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_name"}},
	{Field: "args", Of: observed.Tool, Names: []string{"gen_ai.tool.call.arguments"}},
	{Field: "args", Of: observed.Tool, Names: []string{"input.value"}, Mark: "TOOL"},
	{Field: "args", Of: observed.Tool, Names: []string{"ai.toolCall.args"}},
	{Field: "args", Of: observed.Tool, Names: []string{"full_command", "file_path"}, Name: "claude_code."},
	{Field: "result", Of: observed.Tool, Names: []string{"gen_ai.tool.call.result"}},
	{Field: "result", Of: observed.Tool, Names: []string{"output.value"}, Mark: "TOOL"},
	{Field: "result", Of: observed.Tool, Names: []string{"ai.toolCall.result"}},
	{Field: "error", Names: []string{"error.type"}},
	{Field: "success", Names: []string{"success"}},
	{Field: "input_tokens", Of: observed.Inference, Name: "claude_code.", Sum: true,
		Names: []string{"input_tokens", "cache_read_tokens", "cache_creation_tokens"}},
	{Field: "input_tokens", Of: observed.Inference, Names: []string{
		"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"}},
	{Field: "output_tokens", Of: observed.Inference, Names: []string{
		"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"}},
	{Field: "output_tokens", Of: observed.Inference, Name: "claude_code.", Names: []string{"output_tokens"}},
	{Field: "cost_usd", Of: observed.Inference, Names: []string{"llm.cost.total"}},
}

// Claude Code reports how a call ended in a child of the call's span, and the call's output in an event.
const (
	executionSpan = "claude_code.tool.execution"
	outputEvent   = "tool.output"
	outputName    = "output"
)

// maxText is the most bytes of names, ids and error types that come with spans.
const maxText = 256
