package drift

import "time"

// The names of the measures that rules of the user can read, as measures.steps and so on.
const (
	measureSteps         = "steps"
	measureTokens        = "tokens"
	measureCost          = "cost_usd"
	measureWall          = "wall_seconds"
	measureErrorsInRow   = "errors_in_a_row"
	measureErrorsIn10    = "errors_in_10"
	measureOldIn8        = "old_in_8"
	measureStalledSteps  = "steps_since_progress"
	measureStalledTime   = "seconds_since_progress"
	measureCheckpoints   = "checkpoints"
	measureBytes         = "checkpoint_bytes"
	measureCheckpointAge = "seconds_since_checkpoint"
	measureContextAge    = "seconds_since_refresh"
)

func measureNames() []string {
	return []string{
		measureSteps, measureTokens, measureCost, measureWall, measureErrorsInRow, measureErrorsIn10, measureOldIn8,
		measureStalledSteps, measureStalledTime, measureCheckpoints, measureBytes, measureCheckpointAge, measureContextAge,
	}
}

// Measures returns the named numbers that rules of the user can read. All names are
// always present.
func (r *run) Measures() map[string]float64 {
	m := make(map[string]float64, len(measureNames()))
	for _, name := range measureNames() {
		m[name] = 0
	}
	if r.set.off {
		return m
	}
	m[measureSteps], m[measureTokens], m[measureCost] = float64(r.ended), r.spent.used[budgetTokens], r.spent.used[budgetCost]
	m[measureWall] = seconds(r.startedAt, r.now)
	r.measureSteps(m)
	if r.progress.declared {
		m[measureStalledSteps], m[measureStalledTime] = float64(r.ended-r.progress.grewStep), seconds(r.progress.grewAt, r.now)
	}
	m[measureCheckpoints] = float64(r.states.count)
	if newest := r.states.back(1); newest != nil {
		m[measureBytes] = float64(newest[0].Size)
	}
	m[measureCheckpointAge], m[measureContextAge] = seconds(r.routine.since, r.now), seconds(r.refresh.since, r.now)
	return m
}

func (r *run) measureSteps(m map[string]float64) {
	row := 0
	for row < r.steps.len() && r.steps.last(row).bad {
		row++
	}
	m[measureErrorsInRow] = float64(row)
	for i := range min(10, r.steps.len()) {
		m[measureErrorsIn10] += float64(b2i(r.steps.last(i).bad))
	}
	for i := range min(8, r.steps.len()) {
		m[measureOldIn8] += float64(b2i(r.steps.last(i).old))
	}
}

func seconds(from, to time.Time) float64 {
	if from.IsZero() || !to.After(from) {
		return 0
	}
	return to.Sub(from).Seconds()
}
