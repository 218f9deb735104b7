package journal

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// WriteLost writes agents of one owner from the engine as an export. fill reads the contents of a
// run, which are dropped after they were written. If it sets the run's Damage, the run is left out.
// WriteLost returns what was left out because the engine's copy of it is damaged.
func WriteLost(w io.Writer, agents []fleet.LostAgent, fill func(*fleet.LostRun) error) (damaged []fleet.DamagedCheckpoint, err error) {
	x := copy.NewLineWriter(w)
	for i := range agents {
		a := &agents[i]
		x.Damaged = func(run, id string, seq int64, why error) {
			damaged = append(damaged, fleet.DamagedCheckpoint{Kind: "checkpoint", Owner: a.Owner, Agent: a.Name, Run: run,
				ID: id, Seq: seq, Reason: why.Error()})
		}
		x.Agent(a.Doc)
		for _, run := range a.Runs {
			lost := func(kind, id, why string) {
				damaged = append(damaged, fleet.DamagedCheckpoint{Kind: kind, Owner: a.Owner, Agent: a.Name, Run: run.Name, ID: id, Reason: why})
			}
			if run.Damage == "" {
				if err := fill(&run); err != nil {
					return nil, err
				}
			}
			if run.Damage != "" {
				lost("run", run.UID, run.Damage)
				continue
			}
			for _, row := range run.Unread {
				lost(row.Kind, row.Key, row.Reason)
			}
			writeRun(x, &run)
		}
	}
	return damaged, x.End()
}

// KeepRuns returns the identities that an import of agents must keep: those of the runs. The agents
// still belong to the host that had them: here, the runs join the agent of the same name and owner,
// or a new agent.
func KeepRuns(agents []fleet.LostAgent) copy.Kept {
	k := copy.Kept{Runs: map[[2]string]copy.KeptRun{}}
	for i := range agents {
		for _, r := range agents[i].Runs {
			k.Runs[[2]string{agents[i].Name, r.Name}] = copy.KeptRun{UID: r.UID, Epoch: fleet.FirstEpoch(r.Term)}
		}
	}
	return k
}

func writeRun(x *copy.LineWriter, r *fleet.LostRun) {
	segments := segmentsOf(r)
	for i := range r.Checkpoints {
		c := &r.Checkpoints[i]
		if c.Damage != "" {
			x.Lost(r.Name, c.ID, c.Seq, errors.New(c.Damage))
			continue
		}
		x.Checkpoint(r.Name, c.Doc, c.Seq, &blob.StateRow{N: c.N, ID: c.ID, Size: c.Size, SHA256: c.SHA256, Body: c.Body, Pieces: c.Pieces}, inflated(segments))
	}
	x.Run(r.Name, r.Doc, r.Status == string(ckpt.RunRunning) && !r.Sure || len(r.Unread) > 0)
	inOrder(r.Rows)
	for _, row := range r.Rows {
		x.Row(row.Kind, r.Name, row.Doc)
	}
}

// inOrder sorts rows into the order of an export: by kind, and within a kind by the time at which
// they began.
func inOrder(rows []fleet.Row) {
	kinds, began := map[string]int{}, map[string]string{}
	for i, kind := range copy.Kinds() {
		kinds[kind] = i
	}
	for _, row := range rows {
		var d struct {
			At        string `json:"at"`
			StartedAt string `json:"started_at"`
		}
		if row.Order == 0 && json.Unmarshal([]byte(row.Doc), &d) == nil {
			began[row.Kind+" "+row.Key] = d.At + d.StartedAt
		}
	}
	slices.SortStableFunc(rows, func(a, b fleet.Row) int {
		if by := kinds[a.Kind] - kinds[b.Kind]; by != 0 {
			return by
		}
		if a.Order != b.Order {
			return int(a.Order - b.Order)
		}
		return strings.Compare(began[a.Kind+" "+a.Key], began[b.Kind+" "+b.Key])
	})
}
