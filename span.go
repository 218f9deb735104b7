package ckptsidecar

// SpanKind is the meaning of an OpenTelemetry span for the daemon.
type SpanKind string

// The kinds of spans. A span of no kind is counted and not stored.
const (
	SpanTool      SpanKind = "tool"      // a call of a tool: a step
	SpanInference SpanKind = "inference" // a call of a model: a turn and its usage, never a step
	SpanAgent     SpanKind = "agent"     // a segment of a run
	SpanStructure SpanKind = "structure" // it only says what lies below what
)

// SpanMark recognizes a kind of span.
type SpanMark struct {
	Kind      SpanKind
	Attribute string   // "" for the span's name
	Values    []string // one of these; * stands for any text
	Root      bool     // only a span without a parent
}

// SpanMarks are tried in this order; the first match counts. All names of generative AI are still
// in development, so this table and SpanFields are the only place that has the names for spans, as
// TelemetryNames is for steps.
var SpanMarks = []SpanMark{
	{Kind: SpanTool, Attribute: "gen_ai.operation.name", Values: []string{"execute_tool", "tool_call"}},
	{Kind: SpanInference, Attribute: "gen_ai.operation.name", Values: []string{"chat", "generate_content", "text_completion", "llm_call"}},
	{Kind: SpanAgent, Attribute: "gen_ai.operation.name", Values: []string{"invoke_agent", "invoke_workflow", "agent_call"}},
	{Kind: SpanStructure, Attribute: "gen_ai.operation.name", Values: []string{
		"create_agent", "plan", "embeddings", "retrieval", "*memory*", "schedule_tool_calls"}},
	{Kind: SpanTool, Attribute: "openinference.span.kind", Values: []string{"TOOL"}},
	{Kind: SpanInference, Attribute: "openinference.span.kind", Values: []string{"LLM"}},
	{Kind: SpanAgent, Attribute: "openinference.span.kind", Values: []string{"AGENT"}},
	{Kind: SpanStructure, Attribute: "openinference.span.kind", Values: []string{"CHAIN", "RETRIEVER"}},
	{Kind: SpanTool, Values: []string{"ai.toolCall", "claude_code.tool"}},
	{Kind: SpanInference, Values: []string{"ai.*.doGenerate", "ai.*.doStream", "claude_code.llm_request"}},
	{Kind: SpanAgent, Values: []string{"ai.generateText", "ai.streamText"}, Root: true},
	{Kind: SpanAgent, Values: []string{"claude_code.interaction"}},
	{Kind: SpanStructure, Values: []string{
		"ai.generateText", "ai.streamText", "claude_code.tool.execution", "claude_code.tool.blocked_on_user"}},
}

// SpanField lists the attributes that can hold a field of a Span. The first attribute present
// counts.
type SpanField struct {
	Field string
	Names []string
	Of    SpanKind // "" for all kinds
	Mark  string   // only in a span whose openinference.span.kind is this
	Name  string   // only in a span whose name begins with this
	Sum   bool     // the attributes are added up
}

// SpanFields are all attributes of a span that are read, beside those in SpanMarks. Other
// attributes are never stored.
var SpanFields = []SpanField{
	{Field: "run", Names: []string{"gen_ai.conversation.id", "session.id", "ai.telemetry.metadata.sessionId"}},
	{Field: "root_agent", Names: []string{"gen_ai.agent.name"}},
	{Field: "agent", Names: []string{"agent.name"}},
	{Field: "call", Of: SpanTool, Names: []string{
		"gen_ai.tool.call.id", "gen_ai.tool.call_id", "tool.id", "tool_call.id", "ai.toolCall.id", "tool_use_id"}},
	{Field: "name", Of: SpanTool, Names: []string{"gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_name"}},
	{Field: "args", Of: SpanTool, Names: []string{"gen_ai.tool.call.arguments"}},
	{Field: "args", Of: SpanTool, Names: []string{"input.value"}, Mark: "TOOL"},
	{Field: "args", Of: SpanTool, Names: []string{"ai.toolCall.args"}},
	{Field: "result", Of: SpanTool, Names: []string{"gen_ai.tool.call.result"}},
	{Field: "result", Of: SpanTool, Names: []string{"output.value"}, Mark: "TOOL"},
	{Field: "result", Of: SpanTool, Names: []string{"ai.toolCall.result"}},
	{Field: "error", Names: []string{"error.type"}},
	{Field: "success", Names: []string{"success"}},
	{Field: "input_tokens", Of: SpanInference, Name: "claude_code.", Sum: true,
		Names: []string{"input_tokens", "cache_read_tokens", "cache_creation_tokens"}},
	{Field: "input_tokens", Of: SpanInference, Names: []string{
		"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"}},
	{Field: "output_tokens", Of: SpanInference, Names: []string{
		"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"}},
	{Field: "output_tokens", Of: SpanInference, Name: "claude_code.", Names: []string{"output_tokens"}},
	{Field: "cost_usd", Of: SpanInference, Names: []string{"llm.cost.total"}},
}

// SpanContent is what is stored of the arguments and the results of tools.
type SpanContent string

// The ways to store content. The drift detectors compare the hashes of a call. They are keyed with
// a secret of the database, so they reveal nothing about the content.
const (
	SpanContentHash SpanContent = "hash" // keyed prints, and no text
	SpanContentNone SpanContent = "none" // nothing; it is not even read
	SpanContentKeep SpanContent = "keep" // the text, without what looks like a secret
)

// SpanContents lists every way to store content.
var SpanContents = []SpanContent{SpanContentHash, SpanContentNone, SpanContentKeep}

// Span is the part of an OpenTelemetry span that the daemon uses.
type Span struct {
	Trace     string   `json:"trace"`            // 32 hex digits
	ID        string   `json:"id"`               // 16 hex digits
	Parent    string   `json:"parent,omitempty"` // "" for the root of its trace
	Kind      SpanKind `json:"kind"`
	Run       string   `json:"run,omitempty"`        // the conversation, as a name of a run; "" where the span does not say
	RootAgent string   `json:"root_agent,omitempty"` // counts where the span is the root
	Agent     string   `json:"agent,omitempty"`
	Service   string   `json:"service,omitempty"`
	Call      string   `json:"call,omitempty"` // the model's id of the call; not unique
	Name      string   `json:"name,omitempty"` // of the tool
	Began     Time     `json:"began"`
	Ended     Time     `json:"ended"`
	BeganNS   int64    `json:"began_ns"` // the same to the nanosecond, for the order
	EndedNS   int64    `json:"ended_ns"`
	Failed    bool     `json:"failed,omitempty"`
	Error     string   `json:"error,omitempty"`   // the type of the error, never its message
	Partial   bool     `json:"partial,omitempty"` // the emitter samples, or dropped attributes
	Args      JSON     `json:"args,omitempty"`
	Result    JSON     `json:"result,omitempty"`
	Measures
}

// Key returns the key of the step that a span of a tool becomes.
func (s *Span) Key() string { return "span:" + s.Trace + "/" + s.ID }

// MaxSpanText bounds names, ids and types of errors that come with spans.
const MaxSpanText = 256

// SourceOTLP is the source of a run that is observed through OpenTelemetry.
const SourceOTLP = "otlp"

// SpansObserved counts what happened to the spans of a request.
type SpansObserved struct {
	Steps      int // spans of tools that were taken over
	Usage      int // spans of models and agents that were taken over
	Ignored    int // spans that mean nothing here, or only structure
	Duplicates int // spans that were there already
	Refused    int // spans that cannot be taken over
	Why        string
}
