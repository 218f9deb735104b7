package eino

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Store is a compose.CheckPointStore. Each checkpoint id of eino is a run of the agent, and each
// Set is a checkpoint of that run. Earlier checkpoints stay as long as the agent's policy says.
type Store struct {
	Agent *client.Agent
}

var errNoAgent = errors.New("eino.Store has no Agent: say which with (&client.Client{}).Agent(name)")

// Set saves a checkpoint of a graph. It returns when the checkpoint is on disk.
func (s *Store) Set(ctx context.Context, checkPointID string, checkPoint []byte) error {
	if s.Agent == nil {
		return errNoAgent
	}
	var state any = checkPoint
	if jsontext.Check(checkPoint) == nil { // then people can read it
		state = json.RawMessage(checkPoint)
	}
	_, err := s.Agent.Save(ctx, state, client.SaveOptions{Run: RunName(checkPointID), Metadata: about{checkPointID}, Empty: true})
	return err
}

// Get returns the newest checkpoint of a graph, and false if there is none. The audit log records
// it.
func (s *Store) Get(ctx context.Context, checkPointID string) ([]byte, bool, error) {
	if s.Agent == nil {
		return nil, false, errNoAgent
	}
	var state []byte
	_, err := s.Agent.Restore(ctx, &state, client.RestoreOptions{Run: RunName(checkPointID), Kind: ckpt.KindRoutine, Reason: "eino"})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, false, nil
	}
	return state, err == nil, err
}

// about is the metadata of a checkpoint.
type about struct {
	CheckPointID string `json:"eino_checkpoint_id"`
}

const readable = 100 // bytes of an id that are in the name of its run

// RunName returns the run that has the checkpoints of an id. The id can be any text.
func RunName(checkPointID string) string {
	sum := sha256.Sum256([]byte(checkPointID))
	text := strings.TrimLeft(strings.Map(nameRune, checkPointID), "._:@+-")
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
