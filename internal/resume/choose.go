package resume

import (
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// choice is the checkpoint to go on from, and the checkpoints that were skipped.
type choice struct {
	fact     FactCheckpoint
	loaded   *ckpt.Checkpoint // nil if there is no checkpoint to go on from
	skipped  []ckpt.Skipped   // newest first
	damaged  int              // how many of the skipped are damaged
	suspects int              // how many of the skipped are suspect
	oldest   FactCheckpoint   // the oldest suspect checkpoint that was skipped; zero for none
}

func (c *choice) suspect() bool { return c.loaded != nil && c.fact.Suspect }

const whySuspect = "suspect: it was saved after the first evidence of critical drift"

// suspicion returns why a checkpoint is suspect, with the finding if it is known.
func suspicion(f *Facts, seq int64) string {
	for i := range f.Findings {
		if finding := &f.Findings[i]; covers(finding, seq) {
			return whySuspect + " (" + inWords(finding) + ")"
		}
	}
	return whySuspect
}

// covers reports whether a checkpoint is suspect because of a finding.
func covers(f *ckpt.Finding, seq int64) bool {
	return f.SinceSeq != nil && seq > *f.SinceSeq && (f.UntilSeq == nil || seq <= *f.UntilSeq)
}

// inWords returns a finding in one line: its rule and its message.
func inWords(f *ckpt.Finding) string { return f.Rule + ": " + strings.TrimRight(f.Message, ".") }

// choose takes the newest checkpoint that is clean and intact. If there is none, it
// takes the newest intact one of those that are suspect.
func choose(f *Facts) (choice, error) {
	c := choice{skipped: []ckpt.Skipped{}}
	damage := make(map[int]string)
	at, err := c.load(f, false, damage)
	if err == nil && at < 0 {
		at, err = c.load(f, true, damage)
	}
	if err != nil {
		return choice{}, err
	}
	for i, fact := range f.Checkpoints {
		why := damage[i]
		switch {
		case why != "":
			c.damaged++
		case fact.Suspect && i < at:
			why, c.oldest = suspicion(f, fact.Seq), fact
			c.suspects++
		default:
			continue
		}
		c.skipped = append(c.skipped, ckpt.Skipped{ID: fact.ID, Seq: fact.Seq, Reason: why})
	}
	return c, nil
}

// load reads the clean or the suspect checkpoints until one is intact. It returns the
// index of that checkpoint, -1 if none is intact.
func (c *choice) load(f *Facts, suspect bool, damage map[int]string) (int, error) {
	for i, fact := range f.Checkpoints {
		if fact.Suspect != suspect {
			continue
		}
		loaded, err := f.Load(fact.ID)
		if err == nil {
			err = check(loaded, fact.ID)
		}
		switch {
		case err == nil:
			if loaded.Run != f.Run.Run { // the beginning of a fork: its number belongs to another run
				fact.Seq, fact.StateOf = 0, nil
			}
			c.fact, c.loaded = fact, loaded
			return i, nil
		case ckpt.CodeOf(err) != ckpt.CodeCorrupt:
			return -1, err
		}
		damage[i] = "damaged: " + whatIsWrong(ckpt.AsError(err))
	}
	return -1, nil
}

// whatIsWrong returns the cause of a damage. It leaves out the message, which tells a
// person who asked for that checkpoint what to do: here another checkpoint is taken
// already.
func whatIsWrong(e *ckpt.Error) string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return e.Message
}

// check refuses a checkpoint that cannot be right. The hash of a checkpoint covers its
// state, but not its program, so an impossible offset is damage too.
func check(c *ckpt.Checkpoint, id string) error {
	if c == nil || c.ID != id {
		return ckpt.Errorf(ckpt.CodeInternal, "checkpoint %s was asked for and another one, or none, was given", id)
	}
	if err := c.Program.Check(); err != nil {
		return ckpt.Errorf(ckpt.CodeCorrupt, "its state is intact, but %s", ckpt.AsError(err).Message)
	}
	return nil
}
