package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// wanted are the events of each product that hooks are installed for.
var wanted = map[Product][]string{
	ClaudeCode: {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PreCompact",
		"SubagentStart", "SubagentStop", "Stop", "SessionEnd"},
	Codex:  {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact", "SubagentStart", "SubagentStop", "Stop", "SessionEnd"},
	Gemini: {"SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "PreCompress", "AfterAgent", "SessionEnd"},
}

// timeoutOf returns after how many seconds a product gives up on a hook that ends by
// itself after most.
func timeoutOf(most time.Duration) int { return max(5, int(most/time.Second)+3) }

// group returns what is written for an event: the command and, for events of tools, a
// matcher for all tools. The timeout is in the product's unit; the command itself ends
// before.
func group(p Product, name, command string, most time.Duration) json.RawMessage {
	hook := map[string]any{"type": "command", "command": command, "timeout": timeoutOf(most)}
	if p == Gemini {
		hook["name"], hook["timeout"] = "ckptsidecar", 1000*timeoutOf(most)
	}
	g := map[string]any{"hooks": []any{hook}}
	switch events[name] {
	case toolBegins, toolEnded, toolFailed:
		g["matcher"] = map[Product]string{ClaudeCode: "*", Codex: ".*", Gemini: ".*"}[p]
	}
	text, err := plain(g)
	if err != nil {
		panic(err) // g has only strings and numbers, so this cannot happen
	}
	return text
}

// ours matches a command that calls this program's hook, wherever the program is
// installed and whatever its file is named: install always writes the product behind
// the verb.
var ours = regexp.MustCompile(`(^|[/\\\s"'])ckptsidecar(\.exe)?["']?(\s+-\S+)*\s+hook(\s|$)|\shook\s+--for\s+(claude-code|codex|gemini)(\s|$)`)

// Install adds our hooks to a file of settings, and replaces those that were there
// before. Everything else stays as it is, in its order. The command takes at most the
// time most.
func Install(p Product, settings []byte, command string, most time.Duration) ([]byte, error) {
	return edit(settings, func(name string, groups []json.RawMessage) []json.RawMessage {
		for _, w := range wanted[p] {
			if w == name {
				groups = append(groups, group(p, name, command, most))
			}
		}
		return groups
	}, wanted[p])
}

// Uninstall removes our hooks.
func Uninstall(settings []byte) ([]byte, error) {
	return edit(settings, func(_ string, groups []json.RawMessage) []json.RawMessage { return groups }, nil)
}

// SettingsFile returns the path of a product's settings below a folder: the home of a user or the root of a project. The products
// themselves let env name another folder for a user.
func SettingsFile(p Product, folder string, env func(string) string) string {
	names := map[Product][3]string{ // the folder, the variable with its name, the file
		ClaudeCode: {".claude", "CLAUDE_CONFIG_DIR", "settings.json"},
		Codex:      {".codex", "CODEX_HOME", "hooks.json"},
		Gemini:     {".gemini", "", "settings.json"},
	}[p]
	if env != nil && names[1] != "" && env(names[1]) != "" {
		return filepath.Join(env(names[1]), names[2])
	}
	return filepath.Join(folder, names[0], names[2])
}

// Installed returns for how many events our hooks are installed, and for which they are missing.
func Installed(p Product, settings []byte) (installed int, missing []string) {
	top, _ := membersOf(settings) // what cannot be read has no hooks
	hooks, _ := membersOf(top.get("hooks", "{}"))
	for _, name := range wanted[p] {
		var groups []json.RawMessage
		_ = json.Unmarshal(hooks.get(name, "[]"), &groups)
		if left := withoutOurs(groups); len(left) == len(groups) && slices.EqualFunc(left, groups, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			missing = append(missing, name)
			continue
		}
		installed++
	}
	return installed, missing
}

// edit removes our hooks from all events, lets change add to what is left, and adds the
// events that are missing.
func edit(settings []byte, change func(string, []json.RawMessage) []json.RawMessage, events []string) ([]byte, error) {
	settings = bytes.TrimPrefix(settings, []byte("\ufeff"))
	if len(bytes.TrimSpace(settings)) == 0 {
		settings = []byte("{}")
	}
	if err := jsontext.Check(settings); err != nil {
		return nil, fmt.Errorf("these settings are not plain JSON, which has no comments: %w", err)
	}
	top, ok := membersOf(settings)
	if !ok {
		return nil, fmt.Errorf("these settings are not a JSON object")
	}
	hooks, ok := membersOf(top.get("hooks", "{}"))
	if !ok {
		return nil, fmt.Errorf("hooks in these settings is not a JSON object")
	}
	for _, name := range events {
		hooks.set(name, hooks.get(name, "[]"))
	}
	var left object
	for _, m := range hooks {
		var groups []json.RawMessage
		if json.Unmarshal(m.value, &groups) != nil {
			if slices.Contains(events, m.name) {
				return nil, fmt.Errorf("hooks.%s in these settings is not a JSON array", m.name)
			}
			left = append(left, m) // another setting, such as "enabled" of Gemini CLI
			continue
		}
		before := len(groups)
		groups = change(m.name, withoutOurs(groups))
		if len(groups) == 0 && before > 0 {
			continue // all of it was ours
		}
		text, err := plain(groups)
		if err != nil {
			return nil, err
		}
		left = append(left, member{m.name, text})
	}
	if len(left) > 0 {
		top.set("hooks", left.text())
	} else {
		top.remove("hooks")
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, top.text(), "", "  "); err != nil {
		return nil, err
	}
	pretty.WriteByte('\n')
	return pretty.Bytes(), nil
}

// withoutOurs removes our commands from the groups of an event, and the groups that
// have no other command.
func withoutOurs(groups []json.RawMessage) []json.RawMessage {
	left := []json.RawMessage{}
	for _, g := range groups {
		members, ok := membersOf(g)
		var hooks []json.RawMessage
		if !ok || json.Unmarshal(members.get("hooks", "null"), &hooks) != nil {
			left = append(left, g)
			continue
		}
		others := []json.RawMessage{}
		for _, h := range hooks {
			var command struct {
				Command string `json:"command"`
			}
			if json.Unmarshal(h, &command) != nil || !ours.MatchString(command.Command) {
				others = append(others, h)
			}
		}
		switch {
		case len(others) == len(hooks):
			left = append(left, g)
		case len(others) > 0:
			text, err := plain(others)
			if err != nil {
				return groups
			}
			members.set("hooks", text)
			left = append(left, members.text())
		}
	}
	return left
}

// object is a JSON object whose members keep their order and their bytes.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

func membersOf(text []byte) (o object, ok bool) {
	ok = jsontext.Members(text, func(name string, value []byte) bool {
		o = append(o, member{name, value})
		return true
	})
	return o, ok
}

func (o object) get(name, missing string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return json.RawMessage(missing)
}

func (o *object) set(name string, value json.RawMessage) {
	for i := range *o {
		if (*o)[i].name == name {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{name, value})
}

func (o *object) remove(name string) {
	for i := range *o {
		if (*o)[i].name == name {
			*o = append((*o)[:i:i], (*o)[i+1:]...)
			return
		}
	}
}

func (o object) text() json.RawMessage {
	var parts []string
	for _, m := range o {
		name, err := plain(m.name)
		if err != nil {
			continue // a string can always be written
		}
		parts = append(parts, string(name)+":"+string(m.value))
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}

// plain returns JSON without the escapes that only browsers need.
func plain(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
