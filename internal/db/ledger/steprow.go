package ledger

import ckpt "github.com/ckptsidecar/ckptsidecar"

// StepRow is a stored step.
type StepRow struct {
	ckpt.Step
	ID       int64    `db:"id"`
	AfterSeq int64    `db:"after_seq"`
	Stretch  int64    `db:"stretch"`
	Failures int64    `db:"failures"`
	Sig      ckpt.Ref `db:"sig"`
	Shape    ckpt.Ref `db:"shape"`
	Effect   ckpt.Ref `db:"effect"`
	Res      ckpt.Ref `db:"res"`
	More     bool     `db:"more"` // in a list: another step comes after it
}

const StepColumns = `id, key, name, args, status, attempt, result, error, started_at, ended_at, duration_ms,
	input_tokens, output_tokens, cost_usd, progress, after_seq, stretch, failures, sig, turn, outcome, shape, effect, res`
