package ckptsidecar

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
)

// Command is how an agent is started: exec records it with the run.
type Command struct {
	Argv   []string `json:"argv"`   // its words
	Folder string   `json:"folder"` // where
}

// maxArgv is the most words of a command that are recorded.
const maxArgv = 1000

// Check refuses a command that cannot be recorded.
func (c *Command) Check() error {
	if c == nil {
		return nil
	}
	size := len(c.Folder)
	for _, word := range c.Argv {
		size += len(word)
	}
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return Errorf(CodeInvalid, "command has no argv: give the words of the command that starts the agent")
	case len(c.Argv) > maxArgv:
		return Errorf(CodeTooLarge, "the command has %d words: at most %d are recorded", len(c.Argv), maxArgv)
	case size > MaxText:
		return Errorf(CodeTooLarge, "the command is %d bytes long: at most %d are recorded", size, MaxText)
	}
	return nil
}

// Value stores the command as JSON.
func (c Command) Value() (driver.Value, error) {
	text, err := json.Marshal(c)
	return string(text), err
}

// Scan reads a stored command.
func (c *Command) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("a stored command is %T, not text", v)
	}
	return json.Unmarshal([]byte(text), c)
}

// ExecCommand is the command with which a person has the agent of a run started, so that it goes on.
// If nobody has said how the agent is started, COMMAND stands for that.
func ExecCommand(agent, run string, c *Command) string {
	words := []string{"ckptsidecar", "exec", "--agent", ShellWord(agent)}
	if run == "" {
		run = MainRun
	}
	words = append(words, "--run", ShellWord(run), "--")
	if c == nil {
		return strings.Join(append(words, "COMMAND"), " ")
	}
	for _, word := range c.Argv {
		words = append(words, ShellWord(word))
	}
	command := strings.Join(words, " ")
	if c.Folder != "" {
		return "cd " + ShellWord(c.Folder) + " && " + command
	}
	return command
}

// WaitsText says who goes on with a run that waits for an answer.
func WaitsText(pid int) string {
	return fmt.Sprintf("waits for an answer; exec (pid %d) will go on", pid)
}

// CommandUnknown is what to say beside ExecCommand if nobody has said how the agent is started.
const CommandUnknown = "nobody has recorded how this agent is started: put its command in the place of COMMAND"
