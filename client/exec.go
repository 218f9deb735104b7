package client

import (
	"cmp"
	"encoding/json"
	"os"
	"strconv"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// What "ckptsidecar exec" tells its command.
const (
	envAgent = "CKPTSIDECAR_AGENT"
	envRun   = "CKPTSIDECAR_RUN"
	envEpoch = "CKPTSIDECAR_EPOCH"
	envPlan  = "CKPTSIDECAR_PLAN"
)

// envTaken names the file of the plan that a run has begun with. A later run of this process, or a
// process that this one starts, must not begin with it too.
const envTaken = "CKPTSIDECAR_PLAN_TAKEN"

// taking is held while a run takes the plan.
var taking sync.Mutex

// planFile returns the file of the plan that nobody has taken, or "".
func planFile(agent string) string {
	file := os.Getenv(envPlan)
	if os.Getenv(envAgent) != agent || os.Getenv(envTaken) == file {
		return ""
	}
	return file
}

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
	taking.Lock()
	defer taking.Unlock()
	file := planFile(agent)
	if file == "" || usualRun(agent) != run {
		return nil
	}
	plan, err := readPlan(file)
	if err != nil || !plan.Claimed || strconv.FormatInt(plan.Epoch, 10) != os.Getenv(envEpoch) {
		return nil
	}
	if os.Setenv(envTaken, file) != nil {
		return nil
	}
	return plan
}

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
