package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (s *Server) addAskTool() {
	add(s, tool[askIn, askOut]{
		name: "ask_person", title: "Ask a person", repeatable: true, waits: true,
		description: "Use it when only a person may decide. While open, call again with the same arguments.",
		do:          s.ask,
	})
}

type askIn struct {
	Question string   `json:"question"`
	Key      string   `json:"key"`
	Choices  []string `json:"choices,omitempty"`
	Wait     int      `json:"wait_seconds,omitempty"`
	Run      string   `json:"run,omitempty"`
}

type askOut struct {
	Message string    `json:"message"`
	Status  string    `json:"status" enum:"open,answered,expired,withdrawn"`
	Choice  string    `json:"choice,omitempty"`
	Data    ckpt.JSON `json:"data"`
	Prompt  string    `json:"prompt" doc:"Its id."`
}

// mostWait is the longest time that a call of the tool waits: hosts give up on a call after
// about a minute.
const mostWait = 50 * time.Second

func (s *Server) ask(ctx context.Context, in *askIn) (*askOut, error) {
	p, err := s.put(ctx, in)
	if err != nil {
		return nil, err
	}
	if most := min(time.Duration(in.Wait)*time.Second, mostWait); p.Status == ckpt.PromptOpen && most > 0 {
		waiting, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		closed, err := s.client.WaitPrompt(waiting, p.ID)
		switch {
		case err == nil:
			p = closed
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
	out := &askOut{Status: string(p.Status), Choice: string(p.Choice), Data: p.Data, Prompt: p.ID}
	switch p.Status {
	case ckpt.PromptAnswered:
		out.Message = fmt.Sprintf("A person answered at %s: follow the answer.", p.AnsweredAt)
	case ckpt.PromptOpen:
		out.Message = fmt.Sprintf("Nobody has answered yet. Tell the user to answer with: ckptsidecar prompts answer %s --choice TEXT --data JSON. "+
			"Then call this tool again with the same arguments. Do not do what you asked about until then.", p.ID)
	default:
		out.Message = fmt.Sprintf("Nobody answered: the question is %s. Do not do what you asked about; ask under another key if it still matters.",
			p.Status)
	}
	return out, nil
}

// put asks the question, under the same lock as the other tools.
func (s *Server) put(ctx context.Context, in *askIn) (*ckpt.Prompt, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := ckpt.CheckKey("key", in.Key); err != nil {
		return nil, err
	}
	ref, err := s.own(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	r := ckpt.QuestionRequest{Agent: ref.Agent, Run: ref.Run, Epoch: ref.Epoch, Key: in.Key, Question: in.Question, Choices: in.Choices}
	if err := r.Check(); err != nil {
		return nil, err
	}
	p, _, err := s.client.AskQuestion(ctx, r)
	return p, s.note(ctx, ref, err)
}
