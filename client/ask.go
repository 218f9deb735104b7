package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Question is a question of a run to a person, and its possible answers.
type Question struct {
	// Key identifies the question if it is asked again after a crash. Without a key, a question
	// with the same words is the same question until the run has saved something after the answer.
	Key     string
	Reason  string        // why the run asks, for the person
	Choices []string      // the only possible answers; empty: any answer is allowed
	Schema  any           // the JSON Schema of the data, as JSON text or as a value; nil: any data is allowed
	Expires time.Duration // from now; 0 means never
	Suspend bool          // if there is no answer yet, suspend the run and do not wait
	NoWait  bool          // return the prompt as it is; [Run.Await] waits for the answer
}

// UnansweredError means that a question has no answer: the run was suspended until a person answers
// (the prompt is open), nobody answered in time, or the prompt was withdrawn.
type UnansweredError struct{ Prompt *ckpt.Prompt }

func (e *UnansweredError) Error() string {
	switch e.Prompt.Status {
	case ckpt.PromptExpired:
		return fmt.Sprintf("nobody answered prompt %s until it expired at %s", e.Prompt.ID, e.Prompt.ExpiresAt)
	case ckpt.PromptWithdrawn:
		return fmt.Sprintf("prompt %s was withdrawn without an answer", e.Prompt.ID)
	}
	return fmt.Sprintf("run %s of agent %s is suspended until somebody answers prompt %s", e.Prompt.Run, e.Prompt.Agent, e.Prompt.ID)
}

// Ask asks a person and waits for the answer. Heartbeats continue. The answer is the prompt's
// Choice and Data. After a crash, the resumed run asks again and gets the same prompt, or its
// answer at once. If there is no answer, the error is an *UnansweredError.
func (r *Run) Ask(ctx context.Context, question string, q Question) (*ckpt.Prompt, error) {
	request := ckpt.QuestionRequest{
		Agent: r.Agent.Name, Run: r.Name, Epoch: r.epoch, Key: q.Key, Question: question, Reason: q.Reason, Choices: q.Choices,
		Expires: ckpt.Duration(q.Expires), Suspend: q.Suspend,
	}
	if q.Key == "" {
		request.After = r.answeredBefore(question)
	}
	var err error
	if request.Schema, err = schemaText(q.Schema); err != nil {
		return nil, err
	}
	asking, cancel := r.Agent.client.forAnswer(ctx)
	defer cancel()
	p, _, err := r.Agent.client.wire.AskQuestion(asking, request)
	if err != nil {
		r.noteLost(err)
		return nil, err
	}
	switch {
	case p.Status != ckpt.PromptOpen || q.NoWait && !q.Suspend:
		return r.answered(p)
	case q.Suspend:
		r.mu.Lock()
		r.ended = true
		r.mu.Unlock()
		r.work.stop()
		return nil, &UnansweredError{p}
	}
	return r.Await(ctx, p.ID)
}

// Await waits for the answer to a prompt of the run.
func (r *Run) Await(ctx context.Context, id string) (*ckpt.Prompt, error) {
	p, err := r.Agent.client.wire.WaitPrompt(ctx, id)
	if err != nil {
		return nil, err
	}
	return r.answered(p)
}

// answered records that the run has got the answer to a prompt, so that asking the same words again
// is a new question.
func (r *Run) answered(p *ckpt.Prompt) (*ckpt.Prompt, error) {
	if p.Status == ckpt.PromptOpen {
		return p, nil
	}
	r.mu.Lock()
	if r.asked == nil {
		r.asked = map[string]string{}
	}
	r.asked[p.Question] = max(r.asked[p.Question], p.ID)
	r.mu.Unlock()
	if p.Status != ckpt.PromptAnswered {
		return nil, &UnansweredError{p}
	}
	return p, nil
}

func (r *Run) answeredBefore(question string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[question]
}

// schemaText returns a schema as JSON, or nil if there is none.
func schemaText(schema any) (ckpt.JSON, error) {
	switch s := schema.(type) {
	case nil:
		return nil, nil
	case string:
		return ckpt.JSON(s), nil
	case []byte:
		return s, nil
	case json.RawMessage:
		return ckpt.JSON(s), nil
	case ckpt.JSON:
		return s, nil
	}
	return json.Marshal(schema)
}
