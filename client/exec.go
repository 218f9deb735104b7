package client

import (
	"cmp"
	"encoding/json"
	"os"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// What "ckptsidecar exec" tells its command.
const (
	envAgent = "CKPTSIDECAR_AGENT"
	envRun   = "CKPTSIDECAR_RUN"
	envEpoch = "CKPTSIDECAR_EPOCH"
	envPlan  = "CKPTSIDECAR_PLAN"
)

// execRun returns the run of an agent for which exec has started this process, or "".
func execRun(agent string) string {
	if os.Getenv(envAgent) != agent {
		return ""
	}
	return os.Getenv(envRun)
}

// usualRun returns the run of an agent if none is named: the run of exec, else main.
func usualRun(agent string) string { return cmp.Or(execRun(agent), ckpt.MainRun) }

// handedOver returns the plan with which exec has claimed a run for this process. It returns nil if
// there is none for this run, or none that can be read.
func handedOver(agent, run string) *ckpt.Plan {
	file := os.Getenv(envPlan)
	if file == "" || os.Getenv(envAgent) != agent || usualRun(agent) != run {
		return nil
	}
	plan, err := readPlan(file)
	if err != nil || !plan.Claimed || strconv.FormatInt(plan.Epoch, 10) != os.Getenv(envEpoch) {
		return nil
	}
	if !take(file, plan.Epoch) {
		return nil
	}
	return plan
}

// take reports whether nobody has begun with a plan yet. It leaves a file beside that of the plan, which exec removes:
// a later run of this process, and every other process of the command, must claim the run itself.
func take(file string, epoch int64) bool {
	f, err := os.OpenFile(file+takenSuffix+strconv.FormatInt(epoch, 10), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// takenSuffix and the epoch follow the name of the file of a plan that was taken.
const takenSuffix = ".taken-"

// readPlan reads the file of a plan, which has the state of its checkpoint.
func readPlan(file string) (*ckpt.Plan, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	plan := new(ckpt.Plan)
	with := struct {
		Checkpoint struct {
			State       json.RawMessage `json:"state"`
			StateBase64 []byte          `json:"state_base64"`
		} `json:"checkpoint"`
	}{}
	for _, v := range []any{plan, &with} {
		if err := json.Unmarshal(text, v); err != nil {
			return nil, err
		}
	}
	if plan.Checkpoint != nil {
		plan.Checkpoint.State = with.Checkpoint.State
		if !ckpt.IsJSON(plan.Checkpoint.ContentType) {
			plan.Checkpoint.State = with.Checkpoint.StateBase64
		}
	}
	return plan, nil
}
