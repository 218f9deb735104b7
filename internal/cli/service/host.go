package service

import (
	"context"
	"errors"
)

// errNotInstalled is the error of actions that need an installed service.
var errNotInstalled = errors.New("the service is not installed: run `ckptsidecar service install`")

// errSkipped is the error of a step that cannot be taken here. The service also runs
// without the step.
var errSkipped = errors.New("skipped")

// Host is the service manager of this machine.
type Host interface {
	// rights returns why this user may not change the service, in one line.
	rights() error
	installation() ([]step, error)
	removal() ([]step, error)
	control(verb string) ([]step, error)
	Status(context.Context) (*Status, error)
	// kept lists what stays after the service is uninstalled, and why.
	kept() []string
}

// step is one thing to do. It describes itself, for people and for --dry-run.
type step struct {
	say  string
	done func(changed bool) bool     // reports that nothing is to do; changed: an earlier step did something
	do   func(context.Context) error // nil if the step is only a message
}

// Status is the state of a service.
type Status struct {
	Installed bool   `json:"installed"`
	Scope     string `json:"scope"` // system or user
	Manager   string `json:"manager"`
	State     string `json:"state"` // active, inactive, failed, …
	Running   bool   `json:"running"`
	Enabled   bool   `json:"enabled"` // starts automatically
	PID       int    `json:"pid,omitempty"`
	Since     string `json:"since,omitempty"`
	Socket    string `json:"socket,omitempty"`
	Restarts  int    `json:"restarts"`
	Result    string `json:"result,omitempty"` // of the last run
	Status    string `json:"status,omitempty"` // the last message of the daemon
	Files     string `json:"files,omitempty"`  // as shipped, changed, or from the package
	Log       string `json:"log"`              // the command that shows it
}
