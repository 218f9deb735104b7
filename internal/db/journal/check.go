package journal

import (
	"encoding/json"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// CheckLost checks each state and each document of a run in the engine: a state against its hash.
// It reports damage, and changes nothing.
func CheckLost(r *fleet.LostRun, found func(kind, id, what string)) {
	segments := segmentsOf(r)
	for i := range r.Checkpoints {
		c := &r.Checkpoints[i]
		if c.Damage != "" {
			found("checkpoint", c.ID, c.Damage)
			continue
		}
		_, err := stateOf(segments, c)
		switch {
		case err != nil:
			found("checkpoint", c.ID, err.Error())
		case !json.Valid([]byte(c.Doc)):
			found("checkpoint", c.ID, "its document is no JSON")
		}
	}
	for _, u := range r.Unread {
		found(u.Kind, u.Key, u.Reason)
	}
	for _, row := range r.Rows {
		if !json.Valid([]byte(row.Doc)) {
			found(row.Kind, row.Key, "its document is no JSON")
		}
	}
}
