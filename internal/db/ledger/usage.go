package ledger

import (
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// keepUsage stores the counted usage.
func (s *Core) keepUsage() error {
	if !s.Usage.On() || s.Engine.ReadOnly() != "" {
		return nil
	}
	return s.Submit(&Op{Owner: Daemon, Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		return s.Usage.Keep(tx.Tx, &tx.Tally, tx.Head.N)
	}})
}

// freeRun subtracts the bytes of a run from its owner's bytes, before all rows of the run are
// deleted.
func (tx *Tx) freeRun(owner string, id int64) error {
	return tx.free(owner, usage.OfRun, id)
}

// FreeAgent is freeRun for all of an agent.
func (tx *Tx) FreeAgent(agent *AgentRow) error {
	return tx.free(agent.Owner, usage.OfAgent, agent.ID)
}

func (tx *Tx) free(owner string, bytesOf func(*sqlite.Tx, int64) (int64, error), id int64) error {
	if !tx.Tally.Counts() {
		return nil
	}
	bytes, err := bytesOf(tx.Tx, id)
	if err == nil {
		tx.Tally.Add(owner, -bytes)
	}
	return err
}

// disk returns the free space on the database's disk, and the size of the disk. The write-ahead log
// counts as free: it is copied and cut before a save is refused because the disk is full.
func (s *Core) disk() (free, total int64, err error) {
	free, total, err = osfile.DiskSpace(filepath.Dir(s.Opt.Path))
	_, log := s.Engine.Sizes()
	return free + log, total, err
}

// lookAtRoom checks how much space is left for all owners: on the disk, and in the database if it
// has a limit.
func (s *Core) lookAtRoom() {
	if s.Usage.FreeFloor == 0 {
		return
	}
	left, total, err := s.disk()
	if err != nil {
		left, total = -1, 0
	}
	var unused int64
	if s.Opt.MaxBytes > 0 && s.RO.Get(&unused, `PRAGMA freelist_count`) == nil {
		size, _ := s.Engine.Sizes()
		in := max(0, s.Opt.MaxBytes-size+unused*s.Engine.PageSize())
		if left < 0 || in < left {
			left, total = in, s.Opt.MaxBytes
		}
	}
	s.Usage.SetRoom(left, total)
}
