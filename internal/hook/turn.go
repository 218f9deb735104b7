package hook

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

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

// resultOf returns the result of a call that the transcript of the session has, and whether it was an error. The model has
// seen that result. found is false if the transcript has none.
func (in *Input) resultOf(call string) (text string, failed, found bool) {
	use, err := json.Marshal(call)
	if err != nil || in.Transcript == "" {
		return "", false, false
	}
	for line := range bytes.Lines(tailOf(in.Transcript)) {
		if !bytes.Contains(line, use) {
			continue
		}
		var entry struct {
			Type    string `json:"type"`
			Message struct {
				Content []struct {
					Type    string    `json:"type"`
					Use     string    `json:"tool_use_id"`
					IsError bool      `json:"is_error"`
					Content ckpt.JSON `json:"content"`
				} `json:"content"`
			} `json:"message"`
		}
		if json.Unmarshal(line, &entry) != nil || entry.Type != "user" {
			continue
		}
		for _, part := range entry.Message.Content {
			if part.Type == "tool_result" && part.Use == call {
				if json.Unmarshal(part.Content, &text) != nil {
					text = string(part.Content)
				}
				return text, part.IsError, true
			}
		}
	}
	return "", false, false
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

// background reports whether a call goes on after its tool has answered.
func (in *Input) background() (yes bool) {
	jsontext.Members(in.ToolInput, func(name string, value []byte) bool {
		yes = yes || name == "run_in_background" && string(value) == "true"
		return !yes
	})
	return yes
}
