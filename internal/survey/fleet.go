package survey

import ckpt "github.com/ckptsidecar/ckptsidecar"

// FleetPrompt is a prompt of a run on any host of a fleet.
type FleetPrompt struct {
	ckpt.Prompt
	Host      string `json:"host"`      // the name of the host that owns the run
	DB        string `json:"db"`        // the database of that host
	Principal string `json:"principal"` // of the owner, "" if a former version has shipped the run
	RunUID    string `json:"run_uid"`
}

// FleetPrompts are one page of the open prompts of all hosts, the newest first.
//
//	GET /v1/fleet/prompts?host=…&principal=…&agent=…&before=…&limit=…
type FleetPrompts struct {
	Prompts  []FleetPrompt `json:"prompts"`
	Unopened int64         `json:"sealed_not_opened"` // prompts, open or not, for which this host has no key
	Next     ckpt.Ref      `json:"next"`
}
