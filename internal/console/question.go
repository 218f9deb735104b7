package console

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// property is one member of the answer to a question.
type property struct {
	name, kind, title, help string
	enum                    []json.RawMessage
	required                bool
}

// properties reads a schema as a flat form: an object of texts, numbers, booleans and
// choices, in the schema's order. For any other schema, ok is false; then the answer is
// typed as JSON.
func properties(schema []byte) (list []property, ok bool) {
	var s struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
		AllOf      json.RawMessage `json:"allOf"`
		AnyOf      json.RawMessage `json:"anyOf"`
		OneOf      json.RawMessage `json:"oneOf"`
		Ref        string          `json:"$ref"`
	}
	if json.Unmarshal(schema, &s) != nil || s.Type != "object" || s.AllOf != nil || s.AnyOf != nil || s.OneOf != nil || s.Ref != "" {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(s.Properties))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var p struct {
			Type        string            `json:"type"`
			Title       string            `json:"title"`
			Description string            `json:"description"`
			Enum        []json.RawMessage `json:"enum"`
		}
		if d.Decode(&p) != nil {
			return nil, false
		}
		switch {
		case len(p.Enum) > 0:
			p.Type = "enum"
		case p.Type == "string" || p.Type == "number" || p.Type == "integer" || p.Type == "boolean":
		default:
			return nil, false
		}
		list = append(list, property{name: name.(string), kind: p.Type, title: p.Title, help: p.Description, enum: p.Enum})
	}
	for i := range list {
		for _, r := range s.Required {
			list[i].required = list[i].required || r == list[i].name
		}
	}
	return list, len(list) > 0 && len(list) <= 40
}

// questionFields returns a form for a run's question. It identifies choices by their
// number, so that a form sends no text of other programs back.
func questionFields(p *ckpt.Prompt) (fields []field) {
	if p.Choices != nil {
		f := field{ID: "choice", Name: "choice", Label: "Answer", Kind: "choice", Required: true}
		for i, choice := range p.Choices {
			f.Options = append(f.Options, option{Value: strconv.Itoa(i), Label: choice})
		}
		fields = append(fields, f)
	}
	if !p.HasSchema() {
		if p.Choices == nil {
			fields = append(fields, field{ID: "text", Name: "text", Label: "Answer", Kind: "long", Required: true})
		}
		return fields
	}
	list, ok := properties(p.Schema)
	if !ok {
		return append(fields, field{
			ID: "json", Name: "json", Label: "Data, as JSON", Kind: "long", Required: true,
			Help: "Its schema: " + draw.FirstLine(string(p.Schema), 600),
		})
	}
	for i, m := range list {
		n := strconv.Itoa(i)
		f := field{ID: "m" + n, Name: "m" + n, Label: m.title, Help: m.help, Required: m.required, Kind: "text"}
		if f.Label == "" {
			f.Label = m.name
		}
		switch m.kind {
		case "number", "integer":
			f.Kind = "number"
		case "boolean":
			f.Kind, f.Required = "yes", false
		case "enum":
			f.Kind = "choice"
			for j, value := range m.enum {
				f.Options = append(f.Options, option{Value: strconv.Itoa(j), Label: plainJSON(value)})
			}
		}
		fields = append(fields, f)
	}
	return fields
}

// plainJSON returns a value for people: a text without its quotation marks.
func plainJSON(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// readQuestion reads the form that questionFields created.
func readQuestion(p *ckpt.Prompt, q url.Values, a *ckpt.PromptAnswer) error {
	if p.Choices != nil {
		i, err := strconv.Atoi(q.Get("choice"))
		if err != nil || i < 0 || i >= len(p.Choices) {
			return ckpt.Errorf(ckpt.CodeInvalid, "choose one of the answers")
		}
		a.Choice = ckpt.PromptChoice(p.Choices[i])
	}
	if !p.HasSchema() {
		if p.Choices == nil {
			return readText(q.Get("text"), a)
		}
		return nil
	}
	list, ok := properties(p.Schema)
	if !ok {
		if a.Data = ckpt.JSON(q.Get("json")); !json.Valid(a.Data) {
			return ckpt.Errorf(ckpt.CodeInvalid, "the data is not JSON. Nothing was sent")
		}
		return nil
	}
	var err error
	a.Data, err = readMembers(list, q)
	return err
}

// readText reads a free answer. It is the choice, as with the other clients. If it is too long for that or has
// several lines, it is the data.
func readText(text string, a *ckpt.PromptAnswer) error {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if text == "" {
		return ckpt.Errorf(ckpt.CodeInvalid, "the answer is empty: write one. Nothing was sent")
	}
	if choice := (ckpt.PromptAnswer{ID: a.ID, Choice: ckpt.PromptChoice(text)}); choice.Check() == nil {
		a.Choice = choice.Choice
		return nil
	}
	data, err := json.Marshal(text)
	a.Data = data
	return err
}

// readMembers builds the object from a filled form.
func readMembers(list []property, q url.Values) (ckpt.JSON, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range list {
		text := q.Get("m" + strconv.Itoa(i))
		if text == "" && m.kind != "boolean" && !m.required {
			continue
		}
		value, err := m.value(text)
		if err != nil {
			return nil, err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name)
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// value returns the typed or chosen text as JSON.
func (m property) value(text string) ([]byte, error) {
	switch m.kind {
	case "boolean":
		return []byte(strconv.FormatBool(text != "")), nil
	case "number", "integer":
		if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "%s is no number", draw.FirstLine(m.name, 40))
		}
		return []byte(text), nil
	case "enum":
		i, err := strconv.Atoi(text)
		if err != nil || i < 0 || i >= len(m.enum) {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "choose a value for %s", draw.FirstLine(m.name, 40))
		}
		return m.enum[i], nil
	}
	return json.Marshal(strings.ReplaceAll(text, "\r\n", "\n"))
}
