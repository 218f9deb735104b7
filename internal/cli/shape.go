package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// Shaped reports whether -q, --format or --jq choose a part of a command's output.
func (a *App) Shaped() bool { return a.Quiet || a.template != nil || a.jq != nil }

// IsTemplate reports whether a text contains an action of a Go template.
func IsTemplate(text string) bool { return strings.Contains(text, "{{") }

// SetShape reads -q, --format and --jq. Commands then write output as with --json, and WriteJSON writes the chosen
// part.
func (a *App) SetShape() error {
	a.jsonErrors = a.JSON
	switch {
	case a.JQ != "" && (a.Quiet || IsTemplate(a.Format)):
		return Usagef("-q, --format and --jq exclude each other: give one of them")
	case a.JQ != "":
		code, err := parseJQ(a.JQ)
		if err != nil {
			return err
		}
		a.jq = code
	case a.Quiet && IsTemplate(a.Format):
		return Usagef("-q and --format exclude each other: give one of them")
	case IsTemplate(a.Format):
		t, err := template.New("--format").Funcs(template.FuncMap{
			"json": func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
			"join": func(between string, list []any) string {
				var words []string
				for _, v := range list {
					words = append(words, fmt.Sprint(v))
				}
				return strings.Join(words, between)
			},
		}).Option("missingkey=error").Parse(a.Format)
		if err != nil {
			return Usagef("the template does not parse: %v", err)
		}
		a.template = t
	}
	a.JSON = a.JSON || a.Shaped()
	return nil
}

// WriteJSON writes the output of a command for programs: as JSON, or the part that -q, --format or --jq choose. For a
// list, -q and --format choose from each entry and write a line for each.
func (a *App) WriteJSON(v any) error {
	if !a.Shaped() {
		return term.WriteJSON(a.Data(), v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	if a.jq != nil {
		return writeJQ(a.Data(), a.jq, value)
	}
	for _, entry := range entries(value) {
		if err := a.writeShaped(a.Data(), entry); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) writeShaped(w io.Writer, entry any) error {
	if a.template == nil {
		if id := idIn(entry); id != "" {
			_, err := fmt.Fprintln(w, id)
			return err
		}
		return nil
	}
	var line bytes.Buffer
	if err := a.template.Execute(&line, entry); err != nil {
		return Usagef("the template failed on this output: %v", err)
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}

// entries returns the entries of a list, or the value itself. A list is an array, or an object with one array that has
// the cursor of a next page or no other member.
func entries(value any) []any {
	if list, ok := value.([]any); ok {
		return list
	}
	object, _ := value.(map[string]any)
	var only []any
	_, paged := object["next"]
	arrays := 0
	for _, member := range object {
		list, isList := member.([]any)
		switch {
		case isList:
			only = list
			arrays++
		case !paged:
			return []any{value}
		}
	}
	if arrays != 1 {
		return []any{value}
	}
	return only
}

// idIn returns how another command names an entry: its id, its key, the checkpoint that it is about, its run or its
// agent.
func idIn(entry any) string {
	object, _ := entry.(map[string]any)
	text := func(name string) string { s, _ := object[name].(string); return s }
	for _, name := range []string{"id", "key"} {
		if s := text(name); s != "" {
			return s
		}
	}
	if inner, ok := object["checkpoint"].(map[string]any); ok {
		return idIn(inner)
	}
	switch agent, run := text("agent"), text("run"); {
	case text("checkpoint") != "":
		return text("checkpoint")
	case agent != "" && run != "":
		return agent + "/" + run
	case agent != "":
		return agent
	default: // a host of the fleet
		return text("db")
	}
}
