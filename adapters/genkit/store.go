package genkit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/firebase/genkit/go/core/x/session"
)

// Store is a session.Store. Each session is a run of the agent, and each Save is a checkpoint of
// it. Earlier checkpoints stay as long as the agent's policy says. The last Save wins, as in
// Genkit's own stores.
type Store[S any] struct {
	Agent *client.Agent
}

var errNoAgent = errors.New("genkit.Store has no Agent: say which with (&client.Client{}).Agent(name)")

// Save saves a session. It returns when the session is on disk.
func (s *Store[S]) Save(ctx context.Context, sessionID string, data *session.Data[S]) error {
	if s.Agent == nil {
		return errNoAgent
	}
	if data == nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the session %q has no data", sessionID)
	}
	state, err := json.Marshal(data)
	if err != nil {
		return ckpt.Wrap(ckpt.CodeInvalid, err, "the session %q cannot be written as JSON: %v", sessionID, err)
	}
	_, err = s.Agent.Save(ctx, json.RawMessage(state), client.SaveOptions{Run: RunName(sessionID), Metadata: about{sessionID}})
	return err
}

// Get returns a session, and nil if there is none. The audit log records it.
func (s *Store[S]) Get(ctx context.Context, sessionID string) (*session.Data[S], error) {
	if s.Agent == nil {
		return nil, errNoAgent
	}
	var state json.RawMessage
	_, err := s.Agent.Restore(ctx, &state, client.RestoreOptions{Run: RunName(sessionID), Kind: ckpt.KindRoutine, Reason: "genkit"})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var data session.Data[S]
	if err := json.Unmarshal(state, &data); err != nil {
		return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the session %q does not fit into %T: %v", sessionID, data.State, err)
	}
	return &data, nil
}

// about is the metadata of a checkpoint.
type about struct {
	SessionID string `json:"genkit_session_id"`
}

const readable = 100 // bytes of an id that are in the name of its run

// RunName returns the run that has a session. The session's id can be any text.
func RunName(sessionID string) string {
	sum := sha256.Sum256([]byte(sessionID))
	text := strings.TrimLeft(strings.Map(nameRune, sessionID), "._:@+-")
	text = text[:min(len(text), readable)]
	if text != "" {
		text += "-"
	}
	return text + hex.EncodeToString(sum[:8])
}

// nameRune replaces characters that the name of a run must not contain.
func nameRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._:@+-", r):
		return r
	}
	return '_'
}
