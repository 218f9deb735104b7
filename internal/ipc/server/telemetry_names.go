package server

// TelemetryName is a name in OpenTelemetry's conventions for generative AI, with the step field
// that it stands for.
type TelemetryName struct {
	Name  string
	Field string
	Unit  string // of the value, if the field has another unit
	Begin bool   // only the start of a step, or the record of a whole step, has the field
}

// TelemetryNames are the names that a step can use in addition to its own. If two names stand for
// one field, the first one counts. All gen_ai names are still in development, so they are only in
// this table.
var TelemetryNames = []TelemetryName{
	{Name: "gen_ai.tool.call.id", Field: "key", Begin: true},
	{Name: "gen_ai.tool.name", Field: "name", Begin: true},
	{Name: "gen_ai.operation.name", Field: "name", Begin: true},
	{Name: "gen_ai.tool.call.arguments", Field: "args", Begin: true},
	{Name: "gen_ai.tool.call.result", Field: "result"},
	{Name: "error.type", Field: "error"},
	{Name: "gen_ai.response.id", Field: "turn"},
	{Name: "gen_ai.usage.input_tokens", Field: "input_tokens"},
	{Name: "gen_ai.usage.prompt_tokens", Field: "input_tokens"}, // the former name
	{Name: "gen_ai.usage.output_tokens", Field: "output_tokens"},
	{Name: "gen_ai.usage.completion_tokens", Field: "output_tokens"}, // the former name
	{Name: "gen_ai.client.operation.duration", Field: "duration_ms", Unit: "s"},
	{Name: "gen_ai.execute_tool.duration", Field: "duration_ms", Unit: "s"},
}
