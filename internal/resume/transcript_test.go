package resume

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// block is a part of an Anthropic message.
type block struct {
	Type      string          `json:"type"`
	ID        string          `json:"id,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
}

type anthropicMessage struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// checkAnthropic refuses what that API refuses: each tool_use has exactly one
// tool_result in the next message, which is the user's, and there is no result
// without a call.
func checkAnthropic(messages []anthropicMessage) error {
	var open []string
	for i, m := range messages {
		var results []string
		for _, b := range m.Content {
			if b.Type == "tool_result" {
				results = append(results, b.ToolUseID)
			}
		}
		slices.Sort(results)
		slices.Sort(open)
		if !slices.Equal(open, results) || len(results) > 0 && m.Role != "user" {
			return fmt.Errorf("messages.%d: the calls %q are answered by %q", i, open, results)
		}
		open = nil
		for _, b := range m.Content {
			if b.Type == "tool_use" && m.Role == "assistant" {
				open = append(open, b.ID)
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %q are not answered", open)
	}
	return nil
}

type openAICall struct {
	ID string `json:"id"`
}

type openAIMessage struct {
	Role       string       `json:"role"`
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
	Content    string       `json:"content"`
}

// checkOpenAI refuses what that API refuses: an assistant message with
// tool_calls is followed by one message of role tool for each call.
func checkOpenAI(messages []openAIMessage) error {
	open := map[string]bool{}
	for i, m := range messages {
		if m.Role == "tool" {
			if !open[m.ToolCallID] {
				return fmt.Errorf("messages.%d answers %q, which was not called or is answered", i, m.ToolCallID)
			}
			delete(open, m.ToolCallID)
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("messages.%d comes before the calls %v are answered", i, open)
		}
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %v are not answered", open)
	}
	return nil
}

// mend adds a plan's results to the calls of a transcript, in both forms.
func mend(t *testing.T, p *ckpt.Plan) ([]block, []openAIMessage) {
	t.Helper()
	var blocks []block
	var messages []openAIMessage
	for _, s := range p.CompletedSteps {
		blocks = append(blocks, block{Type: "tool_result", ToolUseID: s.Key, Content: json.RawMessage(s.Result)})
		messages = append(messages, openAIMessage{Role: "tool", ToolCallID: s.Key, Content: string(s.Result)})
	}
	for _, s := range p.InterruptedSteps {
		var b block
		var m openAIMessage
		if err := json.Unmarshal(s.SyntheticResult.Anthropic, &b); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(s.SyntheticResult.OpenAI, &m); err != nil {
			t.Fatal(err)
		}
		blocks, messages = append(blocks, b), append(messages, m)
	}
	return blocks, messages
}

// TestTheTranscriptIsWholeAgain: a crash between tool calls and their results.
// The model requested three: one was answered, one was lost, and one had
// failed, whose error the agent must add.
func TestTheTranscriptIsWholeAgain(t *testing.T) {
	s := scene1(t, `
run interrupted
interrupted 1m
checkpoint 5 routine 2m
step call_1 search succeeded after=5 result='"found"'
step call_2 write interrupted after=5 began=90s ended=1m
step call_<3> call_"3 started after=5
`)
	p, err := Make(&s.Facts)
	if err != nil {
		t.Fatal(err)
	}
	blocks, messages := mend(t, p)
	a := []anthropicMessage{
		{Role: "user", Content: []block{{Type: "text"}}},
		{Role: "assistant", Content: []block{{Type: "tool_use", ID: "call_1"}, {Type: "tool_use", ID: "call_2"}, {Type: "tool_use", ID: "call_<3>"}}},
	}
	o := []openAIMessage{{Role: "user"}, {Role: "assistant", ToolCalls: []openAICall{{"call_1"}, {"call_2"}, {"call_<3>"}}}}
	if checkAnthropic(a) == nil || checkOpenAI(o) == nil {
		t.Fatal("the validators accept a transcript that is broken")
	}
	if checkAnthropic(append(slices.Clone(a), anthropicMessage{"user", blocks[:2]})) == nil || checkOpenAI(append(slices.Clone(o), messages[:2]...)) == nil {
		t.Fatal("the validators accept a transcript that lacks an answer")
	}
	a = append(a, anthropicMessage{"user", blocks}, anthropicMessage{"assistant", []block{{Type: "text"}}})
	o = append(append(o, messages...), openAIMessage{Role: "assistant"})
	if err := checkAnthropic(a); err != nil {
		t.Error(err)
	}
	if err := checkOpenAI(o); err != nil {
		t.Error(err)
	}
	if checkOpenAI(append(o, messages[0])) == nil {
		t.Error("the validator accepts a second answer")
	}
}

// TestACallIsAnsweredOnce: after the transcript was mended and saved, a second
// crash must not lead to a second answer to the same call, which the APIs
// refuse.
func TestACallIsAnsweredOnce(t *testing.T) {
	told := `
run interrupted attempt=2
interrupted 1m
step call_1 search interrupted after=5 began=16m ended=15m
step call_2 search interrupted after=6 began=3m ended=1m
checkpoint 6 routine 10m
checkpoint 5 routine 20m
`
	p, err := Make(&scene1(t, told).Facts)
	if err != nil || len(p.InterruptedSteps) != 1 || p.InterruptedSteps[0].Key != "call_2" {
		t.Errorf("%v, %v", p, err)
	}
	// Without checkpoint 6 both calls have no answer in the state.
	s := scene1(t, told)
	s.Checkpoints = s.Checkpoints[1:]
	if p, err = Make(&s.Facts); err != nil || len(p.InterruptedSteps) != 2 {
		t.Errorf("%v, %v", p, err)
	}
}
