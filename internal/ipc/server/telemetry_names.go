package server

// TelemetryName is a name of OpenTelemetry's conventions for generative AI and
// the field of a step that it stands for.
type TelemetryName struct {
	Name  string
	Field string
	Unit  string // of the value, where the field counts in another
	Begin bool   // only a step that begins, or is recorded whole, has the field
}

// TelemetryNames are the names that a step may use in addition to its own. If two names stand for
// one field, the first counts. All gen_ai names are still in development, so this table is the only
// place that has them.
var TelemetryNames = []TelemetryName{
	{Name: "gen_ai.tool.call.id", Field: "key", Begin: true},
	{Name: "gen_ai.tool.name", Field: "name", Begin: true},
	{Name: "gen_ai.operation.name", Field: "name", Begin: true},
	{Name: "gen_ai.tool.call.arguments", Field: "args", Begin: true},
	{Name: "gen_ai.tool.call.result", Field: "result"},
	{Name: "error.type", Field: "error"},
	{Name: "gen_ai.response.id", Field: "turn"},
	{Name: "gen_ai.usage.input_tokens", Field: "input_tokens"},
	{Name: "gen_ai.usage.prompt_tokens", Field: "input_tokens"}, // as it was called before
	{Name: "gen_ai.usage.output_tokens", Field: "output_tokens"},
	{Name: "gen_ai.usage.completion_tokens", Field: "output_tokens"}, // likewise
	{Name: "gen_ai.client.operation.duration", Field: "duration_ms", Unit: "s"},
	{Name: "gen_ai.execute_tool.duration", Field: "duration_ms", Unit: "s"},
}
