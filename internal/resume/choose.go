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
	doubtful int              // how many of the skipped are doubtful only
	first    FactCheckpoint   // the oldest doubtful checkpoint that was skipped; zero for none
}

func (c *choice) suspect() bool { return c.loaded != nil && c.fact.Suspect }

// Why a checkpoint is skipped.
const (
	whySuspect  = "suspect: it was saved after the first evidence of critical drift"
	whyDoubtful = "doubtful: it was saved after a fault in the state that was not mended"
)

// suspicion returns why a checkpoint is skipped, with the finding if it is known.
func suspicion(f *Facts, fact *FactCheckpoint) string {
	why, severity := whySuspect, ckpt.SeverityCritical
	if !fact.Suspect {
		why, severity = whyDoubtful, ckpt.SeverityWarn
	}
	for i := range f.Findings {
		if finding := &f.Findings[i]; finding.Severity == severity && finding.Covers(fact.Seq) {
			return why + " (" + inWords(finding) + ")"
		}
	}
	return why
}

// inWords returns a finding in one line: its rule and its message.
func inWords(f *ckpt.Finding) string { return f.Rule + ": " + strings.TrimRight(f.Message, ".") }

// choose takes the newest intact checkpoint that is clean. If there is none, it takes
// the newest intact one of those that are doubtful, and then of those that are suspect.
func choose(f *Facts) (choice, error) {
	c := choice{skipped: []ckpt.Skipped{}}
	damage := make(map[int]string)
	at := -1
	for _, kind := range []FactCheckpoint{{}, {Doubtful: true}, {Suspect: true}} {
		var err error
		if at, err = c.load(f, kind, damage); err != nil {
			return choice{}, err
		}
		if at >= 0 {
			break
		}
	}
	for i, fact := range f.Checkpoints {
		why := damage[i]
		switch {
		case why != "":
			c.damaged++
		case fact.Suspect && i < at:
			why, c.oldest = suspicion(f, &fact), fact
			c.suspects++
		case fact.Doubtful && i < at:
			why, c.first = suspicion(f, &fact), fact
			c.doubtful++
		default:
			continue
		}
		c.skipped = append(c.skipped, ckpt.Skipped{ID: fact.ID, Seq: fact.Seq, Reason: why})
	}
	return c, nil
}

// load reads the clean, the doubtful or the suspect checkpoints until one is intact. It
// returns the index of that checkpoint, -1 if none is intact.
func (c *choice) load(f *Facts, kind FactCheckpoint, damage map[int]string) (int, error) {
	for i, fact := range f.Checkpoints {
		if fact.Suspect != kind.Suspect || !fact.Suspect && fact.Doubtful != kind.Doubtful {
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
