package drift

import "time"

// Measures are the named numbers that rules of the user's own may read as
// measures.NAME. All of them are always there.
func (r *run) Measures() map[string]float64 {
	m := map[string]float64{
		"steps": float64(r.ended), "input_and_output_tokens": r.spent.used[budgetTokens], "cost_usd": r.spent.used[budgetCost],
		"wall_seconds": 0, "errors_in_a_row": 0, "errors_in_10": 0, "old_in_8": 0, "steps_since_progress": 0, "seconds_since_progress": 0,
		"checkpoints": float64(r.states.count), "checkpoint_bytes": 0, "seconds_since_checkpoint": 0, "seconds_since_refresh": 0,
	}
	if r.set.off {
		return m
	}
	if !r.startedAt.IsZero() {
		m["wall_seconds"] = seconds(r.startedAt, r.now)
	}
	row := 0
	for row < r.steps.len() && r.steps.last(row).bad {
		row++
	}
	m["errors_in_a_row"] = float64(row)
	for i := range min(10, r.steps.len()) {
		m["errors_in_10"] += float64(b2i(r.steps.last(i).bad))
	}
	for i := range min(8, r.steps.len()) {
		m["old_in_8"] += float64(b2i(r.steps.last(i).old))
	}
	if r.progress.declared {
		m["steps_since_progress"] = float64(r.ended - r.progress.grewStep)
		m["seconds_since_progress"] = seconds(r.progress.grewAt, r.now)
	}
	if newest := r.states.back(1); newest != nil {
		m["checkpoint_bytes"] = float64(newest[0].Size)
	}
	m["seconds_since_checkpoint"] = seconds(r.routine.since, r.now)
	m["seconds_since_refresh"] = seconds(r.refresh.since, r.now)
	return m
}

func seconds(from, to time.Time) float64 {
	if from.IsZero() || !to.After(from) {
		return 0
	}
	return to.Sub(from).Seconds()
}
