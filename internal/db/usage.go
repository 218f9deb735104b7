package db

import (
	"context"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// usage is how many bytes of states each owner has stored, for the quota. It
// is counted at start and kept by the writer. What LangGraph's tasks write counts as well, until the
// next start also when it is gone. Without a quota nobody asks, and a start need
// not look at every run.
type usage struct {
	mu    sync.Mutex
	bytes map[string]int64
}

func (s *Store) loadUsage(ctx context.Context) error {
	if s.opt.MaxOwnerBytes == 0 {
		return nil
	}
	var rows []struct {
		Owner string `db:"owner"`
		Bytes int64  `db:"bytes"`
	}
	err := s.rw.SelectContext(ctx, &rows, `SELECT a.owner, coalesce(sum(r.stored_bytes), 0) + coalesce(
			(SELECT sum(length(w.data)) FROM agents o JOIN graph_threads t ON t.agent_id = o.id JOIN graph_writes w ON w.run_id = t.run_id WHERE o.owner = a.owner), 0) AS bytes
		FROM agents a JOIN runs r ON r.agent_id = a.id GROUP BY a.owner`)
	if err != nil {
		return err
	}
	s.usage.bytes = make(map[string]int64, len(rows))
	for _, row := range rows {
		s.usage.bytes[row.Owner] = row.Bytes
	}
	return nil
}

// countOwner adds to an owner's bytes once the transaction is on disk.
func (s *Store) countOwner(tx *tx, owner string, bytes int64) {
	if bytes == 0 || s.opt.MaxOwnerBytes == 0 {
		return
	}
	tx.onCommit(func() {
		s.usage.mu.Lock()
		defer s.usage.mu.Unlock()
		s.usage.bytes[owner] += bytes
	})
}

// admit refuses a save that breaks its agent's schema or for which its owner has
// no room left. A batch may go over by what waits in it, never more.
func (s *Store) admit(tx *tx, v *save) error {
	if v.drift != nil && v.drift.refused != nil {
		return v.drift.refused
	}
	if err := tx.settle(&v.state); err != nil {
		return err
	}
	return s.room(v.scope.Whose(), 0, v.state.stored())
}

// admitHot is admit for a run of which is known what its newest state is.
func (s *Store) admitHot(tx *tx, v *save, h *hotRun) error {
	if v.state.base == nil || !h.newestIs(v.state.base) || v.drift != nil && v.drift.refused != nil {
		return s.admit(tx, v)
	}
	return s.room(v.scope.Whose(), 0, v.state.stored())
}

// room refuses what an owner has no room for, beside what the same transaction
// has already added.
func (s *Store) room(owner string, added, bytes int64) error {
	most := s.opt.MaxOwnerBytes
	if most == 0 {
		return nil
	}
	s.usage.mu.Lock()
	used := s.usage.bytes[owner] + added
	s.usage.mu.Unlock()
	if used+bytes <= most {
		return nil
	}
	return ckpt.Errorf(ckpt.CodeQuota, "%s has %d of %d bytes stored, and this state needs %d: delete checkpoints or shorten what the policies keep", owner, used, most, bytes)
}
