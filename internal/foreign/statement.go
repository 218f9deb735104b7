package foreign

import (
	"encoding/json"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Statements reads checkpoints of generated code, one in each file. The checkpoints of
// one execution become those of its run, in the order of their counters. The process
// that made them is gone, so the run is interrupted.
func Statements(files []File, o Options) Result {
	var r Result
	var list []found
	for _, f := range files {
		s, err := readStatement(f)
		if err != nil {
			r.refuse(f.Name, "not a statement checkpoint: %v", err)
			continue
		}
		list = append(list, s)
	}
	o.group(&r, StatementCheckpoint, list, finishStatements)
	return r
}

func readStatement(f File) (found, error) {
	top, err := readObject(f.Data)
	if err != nil {
		return found{}, err
	}
	if err := statementSchema.checkObject("", top); err != nil {
		return found{}, err
	}
	metadata := top.object("metadata")
	s := found{file: f, top: top, workflow: namespaceOf(top), run: metadata.text("execution_id")}
	s.counter, _ = metadata.number("counter")
	s.from = original{
		Format: StatementCheckpoint, Workflow: cut(s.workflow, maxOriginal), Run: cut(s.run, maxOriginal),
		Checkpoint: cut(top.text("checkpoint_id"), maxOriginal),
		Position:   cut(metadata.text("statement"), maxOriginal), Counter: metadata.small("counter"),
	}
	if s.at, s.from.Time, err = metadata.moment("timestamp"); err != nil {
		return found{}, fmt.Errorf("in \"/metadata\" %w", err)
	}
	program, why := programOf(metadata)
	if s.program = program; why != "" {
		s.notes = append(s.notes, fmt.Sprintf("%s: %s, so it has no program; the state has the code", f.Name, why))
	}
	return s, nil
}

// statementSchema is the schema of a statement checkpoint.
var statementSchema = schema{
	Type: oneOrMore{"object"}, Required: []string{"checkpoint_id", "namespace", "execution_state", "metadata"},
	Properties: map[string]schema{
		"checkpoint_id": {Type: oneOrMore{"string"}, MinLength: 1},
		"namespace":     {Type: oneOrMore{"string", "object", "null"}},
		"execution_state": {Type: oneOrMore{"object"}, Properties: map[string]schema{
			"variables":  {Type: oneOrMore{"object", "null"}},
			"call_stack": {Type: oneOrMore{"array", "object", "null"}},
			"agents":     {Type: oneOrMore{"array", "object", "null"}},
			"meetings":   {Type: oneOrMore{"array", "object", "null"}},
		}},
		"metadata": {Type: oneOrMore{"object"}, Required: []string{"counter", "execution_id"}, Properties: map[string]schema{
			"execution_id":  {Type: oneOrMore{"string"}, MinLength: 1},
			"counter":       {Type: oneOrMore{"number"}},
			"statement":     {Type: oneOrMore{"string", "null"}},
			"timestamp":     {Type: oneOrMore{"string", "number", "null"}},
			"llm_response":  {Type: oneOrMore{"string", "null"}},
			"executed_code": {Type: oneOrMore{"string", "null"}},
		}},
	},
}

// namespaceOf returns the name of the program: the namespace itself if it is a text, or
// the name in the program's saved namespace.
func namespaceOf(top object) string {
	if name := top.text("namespace"); name != "" {
		return name
	}
	for _, member := range []string{"name", "agent", "__name__"} {
		if name := top.object("namespace").text(member); name != "" && name != "__main__" {
			return name
		}
	}
	return ""
}

func finishStatements(p *Plan, list []found) error {
	last := list[len(list)-1].top
	variables := last.object("execution_state").object("variables")
	p.Start.Goal = p.long("goal", goalOf(last, last.object("metadata"), variables))
	p.End.Status, p.Dead = ckpt.RunInterrupted, true
	return nil
}

// programOf returns the code that the model wrote, and how much of it has run. why says
// why there is no program although there is code.
func programOf(metadata object) (_ *ckpt.Program, why string) {
	response := metadata.text("llm_response")
	if response == "" {
		return nil, ""
	}
	source, offset, why := codeOf(response, metadata.text("executed_code"))
	if why != "" {
		return nil, why
	}
	p := &ckpt.Program{Source: source, Executed: int64(offset)}
	switch size, err := headerSize(p); {
	case err != nil:
		return nil, "its llm_response cannot be sent"
	case size > maxProgram:
		return nil, fmt.Sprintf("its llm_response is too long for a program (%d bytes as JSON, at most %d)", size, maxProgram)
	}
	return p, ""
}

// headerSize returns the length of a program as JSON in ASCII.
func headerSize(p *ckpt.Program) (size int, err error) {
	text, err := json.Marshal(p)
	for _, r := range string(text) {
		switch {
		case r > 0xffff:
			size += 12
		case r > 0x7e:
			size += 6
		default:
			size++
		}
	}
	return size, err
}
