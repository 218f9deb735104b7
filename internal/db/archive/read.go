package archive

import (
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// This file reads single rows of an export, for callers that show rows that were kept elsewhere.

// ReadCheckpoint is the checkpoint of a row, without its owner, agent, run and state.
func ReadCheckpoint(row string) (*ckpt.Checkpoint, error) {
	values, err := checkpoints.parseRow([]byte(row))
	if err != nil {
		return nil, err
	}
	t := checkpoints
	ref := func(name string) ckpt.Ref { return ckpt.Ref(t.text(values, name)) }
	c := &ckpt.Checkpoint{ID: t.text(values, "id"), Seq: t.whole(values, "seq"), Kind: ckpt.Kind(t.text(values, "kind")), Parent: ref("parent"),
		Size: t.whole(values, "size"), SHA256: t.text(values, "sha256"), ContentType: t.text(values, "content_type"),
		Metadata: json.RawMessage(t.text(values, "metadata")), Step: ref("step"), Operation: ref("operation"),
		Pinned: t.whole(values, "pinned") == 1, Suspect: t.whole(values, "suspect") == 1}
	if len(c.Metadata) == 0 {
		c.Metadata = json.RawMessage("{}")
	}
	if c.CreatedAt, err = ckpt.ParseTime(t.text(values, "created_at")); err != nil {
		return nil, err
	}
	if c.Labels, err = readLabels(t.text(values, "labels")); err != nil {
		return nil, err
	}
	if program := t.text(values, "program"); program != "" {
		c.Program = &ckpt.Program{}
		err = json.Unmarshal([]byte(program), c.Program)
	}
	return c, err
}

// ReadPrompt is the prompt of a row, without its owner, agent, run and status.
func ReadPrompt(row string) (*ckpt.Prompt, error) {
	t := tableOf(linePrompt)
	values, err := t.parseRow([]byte(row))
	if err != nil {
		return nil, err
	}
	ref := func(name string) ckpt.Ref { return ckpt.Ref(t.text(values, name)) }
	json := func(name string) ckpt.JSON {
		if text := t.text(values, name); text != "" {
			return ckpt.JSON(text)
		}
		return nil
	}
	p := &ckpt.Prompt{ID: t.text(values, "id"), Kind: ckpt.PromptKind(t.text(values, "kind")), Key: ref("key"), Question: t.text(values, "question"),
		Reason: t.text(values, "reason"), Schema: json("schema"), Checkpoint: ref("checkpoint"), MemoryDiff: json("memory_diff"),
		Choice: ref("choice"), Data: json("data"), AnsweredBy: ref("answered_by")}
	if p.Choice == "" {
		p.Choice = ref("answer")
	}
	if choices := t.text(values, "choices"); choices != "" {
		if err := p.Choices.Scan(choices); err != nil {
			return nil, err
		}
	}
	for name, to := range map[string]*ckpt.Time{"at": &p.At, "expires_at": &p.ExpiresAt, "answered_at": &p.AnsweredAt} {
		if text := t.text(values, name); text != "" {
			if *to, err = ckpt.ParseTime(text); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}
