//go:build linux

package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// call is one call of a tool that the model makes: a command of a shell, or any tool with its arguments.
type call struct {
	shell      string
	background bool
	tool       string
	args       any
}

// turn is one answer of the model: its calls, and what it says.
type turn struct {
	says  string
	calls []call
}

func shell(commands ...string) turn {
	var t turn
	for _, c := range commands {
		t.calls = append(t.calls, call{shell: c})
	}
	return t
}

func says(text string) turn { return turn{says: text} }

// helperMark is in the prompt of a subagent, whose turns are its own.
const helperMark = "Work as the helper."

// model is a model server on loopback, which plays turns that the test has written, and keeps what it was told.
type model struct {
	*httptest.Server
	mu           sync.Mutex
	main, helper []turn
	n            int
	asked        []string // all texts of each request
}

func newModel(t *testing.T) *model {
	m := new(model)
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

// play says what the model will answer from now on. After its last turn it says "Done."
func (m *model) play(turns ...turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.main = turns
}

// told reports whether a request of the agent held a text.
func (m *model) told(text string) bool { return m.tolds(text) != "" }

// tolds returns the line of a request that holds a text.
func (m *model) tolds(text string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.asked {
		if at := strings.Index(a, text); at >= 0 {
			from := strings.LastIndexByte(a[:at], '\n') + 1
			to := strings.IndexByte(a[at:], '\n')
			if to < 0 {
				to = len(a) - at
			}
			return a[from : at+to]
		}
	}
	return ""
}

func (m *model) id(kind string) string {
	m.n++
	return fmt.Sprintf("%s_%06d", kind, m.n)
}

// next returns the next turn of a conversation. first is the text of its first message.
func (m *model) next(first string) turn {
	turns := &m.main
	if strings.Contains(first, helperMark) {
		turns = &m.helper
	}
	if len(*turns) == 0 {
		return says("Done.")
	}
	t := (*turns)[0]
	*turns = (*turns)[1:]
	return t
}

// request has what is read of a request in any of the three forms.
type request struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	System   json.RawMessage `json:"system"`
	Messages []struct {
		Content any `json:"content"`
	} `json:"messages"`
	Input any `json:"input"`
	Tools []struct {
		Name      string            `json:"name"`
		Functions []json.RawMessage `json:"functionDeclarations"`
		Tools     []struct {
			Name string `json:"name"`
		} `json:"tools"`
	} `json:"tools"`
	Contents any `json:"contents"`
	Config   struct {
		Type string `json:"responseMimeType"`
	} `json:"generationConfig"`
}

// texts returns all strings in a JSON value, each on lines of its own.
func texts(v any) string {
	switch v := v.(type) {
	case string:
		return v + "\n"
	case []any:
		var b strings.Builder
		for _, each := range v {
			b.WriteString(texts(each))
		}
		return b.String()
	case map[string]any:
		var b strings.Builder
		for _, each := range v {
			b.WriteString(texts(each))
		}
		return b.String()
	}
	return ""
}

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q request
	_ = json.Unmarshal(body, &q) // what is no request to the model is answered below
	m.mu.Lock()
	defer m.mu.Unlock()
	path := r.URL.Path
	if r.Method == http.MethodPost {
		var all any
		_ = json.Unmarshal(body, &all)
		m.asked = append(m.asked, texts(all))
	}
	switch {
	case strings.HasSuffix(path, "/count_tokens"):
		writeJSON(w, map[string]any{"input_tokens": 10})
	case strings.HasSuffix(path, ":countTokens"):
		writeJSON(w, map[string]any{"totalTokens": 10})
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/messages"):
		m.anthropic(w, &q)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/responses"):
		m.responses(w, &q)
	case strings.HasSuffix(path, "enerateContent"):
		m.gemini(w, &q, strings.Contains(path, "stream"))
	default:
		writeJSON(w, map[string]any{"data": []any{}, "models": []any{}, "object": "list"})
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// events writes server-sent events.
func events(w http.ResponseWriter) func(name string, data map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	return func(name string, data map[string]any) {
		text, _ := json.Marshal(data)
		if name != "" {
			_, _ = fmt.Fprintf(w, "event: %s\n", name)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
	}
}

func (m *model) anthropic(w http.ResponseWriter, q *request) {
	t := says("ok")
	if len(q.Tools) > 0 && len(q.Messages) > 0 {
		t = m.next(texts(q.Messages[0].Content))
	}
	var content []map[string]any
	if t.says != "" {
		content = append(content, map[string]any{"type": "text", "text": t.says})
	}
	stop := "end_turn"
	for _, c := range t.calls {
		stop = "tool_use"
		name, args := c.tool, c.args
		if c.shell != "" {
			given := map[string]any{"command": c.shell, "description": "run"}
			if c.background {
				given["run_in_background"] = true
			}
			name, args = "Bash", given
		}
		content = append(content, map[string]any{"type": "tool_use", "id": m.id("toolu"), "name": name, "input": args})
	}
	usage := map[string]any{"input_tokens": 10, "output_tokens": 5}
	message := map[string]any{"id": m.id("msg"), "type": "message", "role": "assistant", "model": q.Model, "content": content, "stop_reason": stop,
		"stop_sequence": nil, "usage": usage}
	if !q.Stream {
		writeJSON(w, message)
		return
	}
	send := events(w)
	message["content"], message["stop_reason"] = []any{}, nil
	send("message_start", map[string]any{"type": "message_start", "message": message})
	for i, c := range content {
		begun, delta := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": c["text"]}
		if c["type"] == "tool_use" {
			args, _ := json.Marshal(c["input"])
			begun = map[string]any{"type": "tool_use", "id": c["id"], "name": c["name"], "input": map[string]any{}}
			delta = map[string]any{"type": "input_json_delta", "partial_json": string(args)}
		}
		send("content_block_start", map[string]any{"type": "content_block_start", "index": i, "content_block": begun})
		send("content_block_delta", map[string]any{"type": "content_block_delta", "index": i, "delta": delta})
		send("content_block_stop", map[string]any{"type": "content_block_stop", "index": i})
	}
	send("message_delta", map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	send("message_stop", map[string]any{"type": "message_stop"})
}

func (m *model) responses(w http.ResponseWriter, q *request) {
	t := m.next(texts(q.Input))
	var out []map[string]any
	if t.says != "" {
		out = append(out, map[string]any{"type": "message", "id": m.id("msg"), "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": t.says, "annotations": []any{}}}})
	}
	for _, c := range t.calls {
		name, args := c.tool, c.args
		if c.shell != "" {
			name, args = "exec_command", map[string]any{"cmd": c.shell, "yield_time_ms": 30000}
		}
		text, _ := json.Marshal(args)
		item := map[string]any{"type": "function_call", "id": m.id("fc"), "call_id": m.id("call"), "name": name, "arguments": string(text), "status": "completed"}
		for _, tool := range q.Tools { // tools of MCP servers are in a namespace
			for _, inner := range tool.Tools {
				if inner.Name == name {
					item["namespace"] = tool.Name
				}
			}
		}
		out = append(out, item)
	}
	answer := map[string]any{"id": m.id("resp"), "object": "response", "created_at": 1, "status": "in_progress", "model": q.Model, "output": []any{}}
	send := events(w)
	send("response.created", map[string]any{"type": "response.created", "response": answer})
	for i, item := range out {
		send("response.output_item.added", map[string]any{"type": "response.output_item.added", "output_index": i, "item": item})
		send("response.output_item.done", map[string]any{"type": "response.output_item.done", "output_index": i, "item": item})
	}
	answer["status"], answer["output"] = "completed", out
	answer["usage"] = map[string]any{"input_tokens": 10, "input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens": 5,
		"output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": 15}
	send("response.completed", map[string]any{"type": "response.completed", "response": answer})
}

func (m *model) gemini(w http.ResponseWriter, q *request, stream bool) {
	t := says("ok")
	switch {
	case q.Config.Type == "application/json": // who speaks next, and which model is to answer
		t = says(`{"reasoning":"ok","next_speaker":"user","model_choice":"flash","complexity_reasoning":"x","complexity_score":1}`)
	case len(q.Tools) > 0:
		t = m.next("")
	}
	var parts []map[string]any
	if t.says != "" {
		parts = append(parts, map[string]any{"text": t.says})
	}
	for _, c := range t.calls {
		name, args := c.tool, c.args
		if c.shell != "" {
			name, args = "run_shell_command", map[string]any{"command": c.shell, "description": "run", "is_background": c.background}
		}
		parts = append(parts, map[string]any{"functionCall": map[string]any{"name": name, "args": args}})
	}
	answer := map[string]any{
		"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, "modelVersion": "stub",
	}
	if !stream {
		writeJSON(w, answer)
		return
	}
	events(w)("", answer)
}
