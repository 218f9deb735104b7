package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// maxTail is how many bytes at the end of a transcript are searched for a call.
const maxTail = 512 << 10

// turn returns the id of the model's message that made a call, "" if it is not known.
// Claude Code writes it into the transcript of the session, which belongs to the same
// user as this process. Codex's turn_id is useless here: it names a turn of the user,
// in which the model answers many times.
func (in *Input) turn() ckpt.Ref {
	if in.ToolUseID == "" || in.Transcript == "" {
		return ""
	}
	use, err := json.Marshal(in.ToolUseID)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(tailOf(in.Transcript)) {
		if !bytes.Contains(line, use) {
			continue
		}
		var entry struct {
			Type    string `json:"type"`
			Message struct {
				ID      string `json:"id"`
				Content []struct {
					Type string `json:"type"`
					ID   string `json:"id"`
				} `json:"content"`
			} `json:"message"`
		}
		if json.Unmarshal(line, &entry) != nil || entry.Type != "assistant" || len(entry.Message.ID) > ckpt.MaxTurn {
			continue
		}
		for _, part := range entry.Message.Content {
			if part.Type == "tool_use" && part.ID == in.ToolUseID {
				return ckpt.Ref(entry.Message.ID)
			}
		}
	}
	return ""
}

// ending is how the transcript of a session says that a call ended. The model has seen that.
type ending struct {
	status ckpt.StepStatus // succeeded or failed; "" if nobody knows
	why    string          // what went wrong, or why nobody knows
	output string
	code   *int // the exit code of a command
	goesOn bool // in the background
}

// ending returns how a call ended, nil if the transcript does not say it.
func (in *Input) ending(product Product, key string) (end *ending) {
	read := map[Product]func(line []byte, key string) *ending{ClaudeCode: claudeEnding, Codex: codexEnding, Gemini: geminiEnding}[product]
	use, err := json.Marshal(key)
	if err != nil || key == "" || in.Transcript == "" || read == nil {
		return nil
	}
	for line := range bytes.Lines(tailOf(in.Transcript)) {
		if product != Gemini && !bytes.Contains(line, use) {
			continue
		}
		if found := read(line, key); found != nil && (end == nil || end.code == nil) {
			end = found
		}
	}
	return end
}

// stopped is the end of a call that the user stopped, for example with Esc.
var stopped = &ending{why: "the user stopped it: it may have taken effect"}

// rejected is what Claude Code writes for a call that the user refused, and also for one that the user stopped.
const rejected = "user-rejected"

func claudeEnding(line []byte, key string) *ending {
	var entry struct {
		Type      string    `json:"type"`
		Denial    string    `json:"toolDenialKind"`
		BeforeRun bool      `json:"toolDenialBeforeRun"`
		Response  ckpt.JSON `json:"toolUseResult"`
		Message   struct {
			Content []struct {
				Type    string    `json:"type"`
				Use     string    `json:"tool_use_id"`
				IsError bool      `json:"is_error"`
				Content ckpt.JSON `json:"content"`
			} `json:"content"`
		} `json:"message"`
	}
	if json.Unmarshal(line, &entry) != nil || entry.Type != "user" {
		return nil
	}
	for _, part := range entry.Message.Content {
		if part.Type != "tool_result" || part.Use != key {
			continue
		}
		var text string
		if json.Unmarshal(part.Content, &text) != nil {
			text = string(part.Content)
		}
		switch {
		case entry.Denial == rejected && !entry.BeforeRun:
			return stopped
		case part.IsError:
			return &ending{status: ckpt.StepFailed, why: text, output: text}
		case (&Input{ToolResponse: entry.Response}).background():
			return &ending{goesOn: true}
		}
		return &ending{status: ckpt.StepSucceeded, output: text}
	}
	return nil
}

// codexEnding reads an item that was completed, or the answer to the model if the call never became an item: Codex itself
// refused it.
func codexEnding(line []byte, key string) *ending {
	var entry struct {
		Payload struct {
			Type   string `json:"type"`
			CallID string `json:"call_id"`
			Output string `json:"output"`
			Item   struct {
				ID     string `json:"id"`
				Status string `json:"status"`
				Code   *int   `json:"exit_code"`
				Output string `json:"aggregated_output"`
				Stderr string `json:"stderr"`
			} `json:"item"`
		} `json:"payload"`
	}
	_ = json.Unmarshal(line, &entry) // members of other types stay empty
	p := &entry.Payload
	switch {
	case p.Type == "item_completed" && p.Item.ID == key:
		end := &ending{status: ckpt.StepSucceeded, output: p.Item.Output + p.Item.Stderr, code: p.Item.Code}
		switch {
		case p.Item.Code != nil && *p.Item.Code < 0: // Codex has killed it
			return stopped
		case p.Item.Code != nil && *p.Item.Code != 0:
			end.status, end.why = ckpt.StepFailed, failedWith(*p.Item.Code, end.output)
		case p.Item.Status == "declined":
			end.status, end.why = ckpt.StepFailed, "the user declined it"
		case p.Item.Status == "failed":
			end.status, end.why = ckpt.StepFailed, cmp.Or(strings.TrimSpace(end.output), "the tool reported a failure")
		}
		return end
	case p.Type != "function_call_output" || p.CallID != key:
	case strings.HasPrefix(p.Output, "exec_command failed:"):
		return &ending{status: ckpt.StepFailed, why: p.Output, output: p.Output}
	case strings.HasSuffix(p.Output, "\naborted by user"):
		return stopped
	}
	return nil
}

// geminiEnding finds a call by its tool and arguments, because the hooks of Gemini CLI give no id.
func geminiEnding(line []byte, key string) (end *ending) {
	var entry struct {
		Calls []struct {
			Name   string    `json:"name"`
			Args   ckpt.JSON `json:"args"`
			Status string    `json:"status"`
			Result []struct {
				Response struct {
					Response struct {
						Output string `json:"output"`
						Error  string `json:"error"`
					} `json:"response"`
				} `json:"functionResponse"`
			} `json:"result"`
		} `json:"toolCalls"`
	}
	if !bytes.Contains(line, []byte(`"toolCalls"`)) || json.Unmarshal(line, &entry) != nil {
		return nil
	}
	for _, c := range entry.Calls {
		if !strings.HasPrefix(key, prefixOf(c.Name, c.Args)) {
			continue
		}
		var output, failure string
		for _, r := range c.Result {
			output, failure = output+r.Response.Response.Output, failure+r.Response.Response.Error
		}
		switch end = geminiEnd(output); c.Status {
		case "cancelled":
			end = stopped
		case "error":
			end.status, end.why = ckpt.StepFailed, cmp.Or(failure, output, "the tool reported a failure")
		}
	}
	return end
}

// geminiOutput is what Gemini CLI tells its model about a command that ended: its output, and lines behind it.
var geminiOutput = lazily(`(?s)^Output: (.*?)((?:\n(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): [^\n]*)*)\s*$`)

// geminiEnd returns how a command ended, from what Gemini CLI tells its model about it.
func geminiEnd(text string) *ending {
	inner, _ := strings.CutPrefix(text, "<untrusted_context>\n")
	inner = strings.TrimSuffix(strings.TrimSpace(inner), "\n</untrusted_context>")
	for begin, end := range geminiWords {
		if strings.HasPrefix(inner, begin) {
			end.why, end.output = cmp.Or(end.why, inner), inner
			return &end
		}
	}
	m := geminiOutput().FindStringSubmatch(inner)
	if m == nil {
		return &ending{status: ckpt.StepSucceeded, output: text}
	}
	none := 0
	end := &ending{status: ckpt.StepSucceeded, output: m[1], code: &none}
	if end.output == "(empty)" {
		end.output = ""
	}
	for line := range strings.Lines(m[2]) {
		name, word, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch n, err := strconv.Atoi(word); {
		case name == "Exit Code" && err == nil && n != 0:
			end.status, end.code, end.why = ckpt.StepFailed, &n, failedWith(n, end.output)
		case name == "Signal" && end.why == "":
			end.status, end.code, end.why = ckpt.StepFailed, nil, strings.TrimSpace("Signal "+word+"\n"+end.output)
		}
	}
	return end
}

// geminiWords are the beginnings of what Gemini CLI tells about a command without an end of its own.
var geminiWords = map[string]ending{
	"Command was cancelled by user before it could start":    {status: ckpt.StepFailed},
	"Command injection detected: ":                           {status: ckpt.StepFailed},
	"Command was cancelled by user before it could complete": *stopped,
	"Command was automatically cancelled ":                   {why: "it took too long and was stopped: it may have taken effect"},
	movedToBackground:                                        {goesOn: true},
}

const movedToBackground = "Command moved to background (PID: "

// failedWith says that a command failed, as Claude Code says it.
func failedWith(code int, output string) string {
	return strings.TrimSpace(fmt.Sprintf("Exit code %d\n%s", code, output))
}

// tailOf returns the end of a regular file, nil if it cannot be read.
func tailOf(path string) []byte {
	info, err := os.Stat(path) // before the open, because opening a pipe would wait for its writer
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size := min(info.Size(), maxTail)
	tail := make([]byte, size)
	n, err := f.ReadAt(tail, info.Size()-size)
	if err != nil && err != io.EOF {
		return nil
	}
	return tail[:n]
}

// background reports whether a call goes on after its tool has answered. Its end is told later, or never.
func (in *Input) background() bool {
	var response struct {
		Task   string `json:"backgroundTaskId"` // of a command of Claude Code
		Status string `json:"status"`           // of a subagent of Claude Code
		Text   string `json:"llmContent"`       // of Gemini CLI
	}
	_ = json.Unmarshal(in.ToolResponse, &response) // members of other types stay empty
	return response.Task != "" || response.Status == "async_launched" || strings.Contains(limit(response.Text, maxName), movedToBackground) ||
		goesOn(in.ToolInput) && !strings.Contains(response.Text, "Exit Code:")
}

// goesOn reports whether the arguments of a call ask that it goes on in the background.
func goesOn(args ckpt.JSON) (yes bool) {
	jsontext.Members(args, func(name string, value []byte) bool {
		yes = yes || (name == "run_in_background" || name == "is_background") && string(value) == "true"
		return !yes
	})
	return yes
}

// notice is how Claude Code tells the model that a call in the background has ended. It comes as a prompt.
var notice = lazily(`(?s)^\s*<task-notification>.*<tool-use-id>([^<]+)</tool-use-id>.*<status>(\w+)</status>`)

// summary is what a notice says.
var summary = lazily(`(?s)<summary>(.*?)</summary>`)

// told returns the end of a call in the background that a prompt tells, and the key of the call. end is nil for the prompt of
// a user.
func (in *Input) told() (key string, end *ending) {
	m := notice().FindStringSubmatch(in.Prompt)
	if m == nil {
		return "", nil
	}
	text := in.Prompt
	if s := summary().FindStringSubmatch(in.Prompt); s != nil {
		text = s[1]
	}
	switch m[2] {
	case "completed":
		return m[1], &ending{status: ckpt.StepSucceeded, output: text}
	case "failed":
		return m[1], &ending{status: ckpt.StepFailed, why: text}
	}
	return m[1], &ending{why: "it was stopped in the background: it may have taken effect"} // killed, stopped
}
