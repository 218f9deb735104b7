package retention

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Held is what retention knows about one checkpoint.
type Held struct {
	ID         string
	Seq        int64
	Kind       ckpt.Kind
	CreatedAt  time.Time
	StoredSize int64
	Pinned     bool
	Suspect    bool
	Damaged    bool   // it did not read back intact: it does not count, and no run can go back to it
	NeededBy   string // what needs it: "an open operation", "a fork", "a prompt", …; "" for nothing
	Operation  bool   // it was saved for an operation; only for pre_operation checkpoints
	Released   bool   // its operation succeeded; only for pre_operation checkpoints
}

// History is what retention knows about one run: its checkpoints, newest first.
type History struct {
	Status      ckpt.RunStatus
	EndedAt     time.Time // zero while the run is resumable
	Ago         int       // how many lives of the run began since this one; 0 for the present life
	Checkpoints []Held
}

// Verdict is the decision of retention about one checkpoint.
type Verdict struct {
	Run    int // of [Budget]: the index of the history that the checkpoint is in
	ID     string
	Remove bool
	Reason string // one phrase, for the audit log and for people
}

// Func decides what of a run stays. [Plan] is the real one. The store takes it as a
// value.
//
// Ages are judged at now. A zero now means that the clock is not trusted, and then
// nothing is removed by age.
type Func func(h History, p ckpt.Policy, now time.Time) []Verdict
