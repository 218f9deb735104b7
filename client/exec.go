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

// taken has the files of plans that runs of this process have begun with. A second run of the same
// name claims the run itself.
var taken sync.Map

// usualRun returns the run of an agent that names none: the run that exec has claimed for it, else
// main.
func usualRun(agent string) string {
	if file := os.Getenv(envPlan); file != "" && os.Getenv(envAgent) == agent {
		if _, again := taken.Load(file); !again {
			return cmp.Or(os.Getenv(envRun), ckpt.MainRun)
		}
	}
	return ckpt.MainRun
}

// handedOver returns the plan with which exec has claimed a run for this process. It returns nil if
// there is none for this run, or none that can be read.
func handedOver(agent, run string) *ckpt.Plan {
	file := os.Getenv(envPlan)
	if file == "" || os.Getenv(envAgent) != agent || cmp.Or(os.Getenv(envRun), ckpt.MainRun) != run {
		return nil
	}
	plan, err := readPlan(file)
	if err != nil || !plan.Claimed || strconv.FormatInt(plan.Epoch, 10) != os.Getenv(envEpoch) {
		return nil
	}
	if _, again := taken.LoadOrStore(file, true); again {
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
