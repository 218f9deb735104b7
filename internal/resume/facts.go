package resume

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Facts are everything that is known about a run when a caller wants to resume it. The
// plan follows from them alone.
type Facts struct {
	Now         time.Time
	Run         ckpt.Run // as stored, before it is claimed; the zero Run if there is none
	Exists      bool     // whether there is such a run
	Autoresume  bool     // the agent's policy
	OwnerAlive  bool     // the owner is not known to be dead: its process is seen, or it sends heartbeats
	OwnerSeen   bool     // the owner's process is seen
	CallerOwns  bool     // the caller is the owner
	Force       bool
	Claimed     *ckpt.PlanFleet // the run has just come from another host
	DryRun      bool
	Leave       bool             // the caller goes on, or begins anew, and leaves uncertain operations as they are
	Checkpoints []FactCheckpoint // newest first, only those since the run last began from nothing
	Steps       []ckpt.Step      // those that ended since it began, and all that are open or interrupted; in order
	StepsAfter  []int64          // for each of Steps: the newest checkpoint's seq when the step ended or began
	Operations  []ckpt.Operation // those that are open or uncertain, in order
	LastEvent   int64
	// Findings are critical ones that made checkpoints suspect, and open warnings about
	// the state, newest first; not those that were dismissed.
	Findings    []ckpt.Finding
	Prompt      *ckpt.Prompt   // the newest decision of the run, answered or not
	Questions   []FactQuestion // the run's own since it began, oldest first: open ones, and answered ones that matter
	Interrupted time.Time      // when the last segment ended without a message from its owner; zero if it did not
	LastSeq     int64          // of the run's newest checkpoint, even if that no longer exists
	GivenUp     int            // checkpoints newer than one that was restored: the run does not go on from them
	OwnerStands bool           // the owner's process exists, but was found frozen
	// Load returns a checkpoint with its state, or an error that says why it is damaged.
	Load func(id string) (*ckpt.Checkpoint, error)
}

// FactCheckpoint is what the plan needs to know about a checkpoint before it is loaded.
type FactCheckpoint struct {
	ID       string
	Seq      int64
	Kind     ckpt.Kind
	Suspect  bool
	Doubtful bool // an open finding about the state has evidence from before it
	At       time.Time
	StateOf  *int64 // the seq of the earlier checkpoint that has the same state; nil if the state is its own
}

// FactQuestion is a question that the run has asked.
type FactQuestion struct {
	ckpt.Prompt
	Seq int64 // the run's newest checkpoint when the question was answered: a later checkpoint knows the answer
}

// StateSeq returns the seq of the checkpoint that first saved this state. The state
// does not know what came later.
func (c *FactCheckpoint) StateSeq() int64 {
	if c.StateOf != nil {
		return *c.StateOf
	}
	return c.Seq
}

// Resumer makes the plan. [Make] is the real one; the store takes it as a value. It
// returns an error only if Load failed for a reason other than damage.
type Resumer func(f *Facts) (*ckpt.Plan, error)
