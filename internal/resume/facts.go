package resume

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Facts are all that is known of a run when somebody wants to resume it. The
// plan follows from them alone.
type Facts struct {
	Now         time.Time
	Run         ckpt.Run // as stored, before it is claimed; the zero Run where there is none
	Exists      bool     // whether there is such a run
	Autoresume  bool     // the agent's policy
	OwnerAlive  bool     // the owner's process lives and beats
	CallerOwns  bool     // it is the owner itself that asks
	Force       bool
	Claimed     *ckpt.PlanFleet // the run has just come from another host
	DryRun      bool
	Checkpoints []FactCheckpoint // newest first, of the present beginning of the run
	Steps       []ckpt.Step      // those that ended since, and all that are open or interrupted; in order
	StepsAfter  []int64          // for each of Steps: the newest checkpoint's seq when it ended or began
	Operations  []ckpt.Operation // open and uncertain ones, in order
	LastEvent   int64
	Findings    []ckpt.Finding // critical ones that made suspects of checkpoints, newest first; not those that were dismissed
	Prompt      *ckpt.Prompt   // the newest prompt of the run, answered or not
	Questions   []FactQuestion // the run's own of this beginning, oldest first: open ones, and answered ones that matter
	Interrupted time.Time      // when the last segment ended without its owner's word; zero where it did not
	LastSeq     int64          // of the run's newest checkpoint, whether it is still there or not
	GivenUp     int            // checkpoints that came after an older one which was restored: nobody goes on from them
	OwnerStands bool           // the owner's process is there, though it was found frozen
	// Load answers a checkpoint with its state, or why it is damaged.
	Load func(id string) (*ckpt.Checkpoint, error)
}

// FactCheckpoint is what the plan needs of a checkpoint before it is loaded.
type FactCheckpoint struct {
	ID      string
	Seq     int64
	Kind    ckpt.Kind
	Suspect bool
	At      time.Time
	StateOf *int64 // the seq of the earlier one whose state it is once more; nil: its own
}

// FactQuestion is a question that the run has asked.
type FactQuestion struct {
	ckpt.Prompt
	Seq int64 // the run's newest checkpoint when it was answered: a later one knows the answer
}

// StateSeq is when its state was saved first: what came later, it does not know.
func (c *FactCheckpoint) StateSeq() int64 {
	if c.StateOf != nil {
		return *c.StateOf
	}
	return c.Seq
}

// Resumer makes the plan. internal/resume has the real one; the store takes it
// as a value. It returns an error only where Load failed for another reason
// than damage.
type Resumer func(f *Facts) (*ckpt.Plan, error)
