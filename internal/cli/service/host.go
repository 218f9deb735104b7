package service

import (
	"context"
	"errors"
)

// errNotInstalled is for what needs a service that is there.
var errNotInstalled = errors.New("the service is not installed: run `ckptsidecar service install`")

// errSkipped is the error of a step that cannot be taken here, and without
// which the service runs all the same.
var errSkipped = errors.New("skipped")

// Host is the service manager of this machine.
type Host interface {
	// rights answers why this user may not change the service, in one line.
	rights() error
	installation() ([]step, error)
	removal() ([]step, error)
	control(verb string) ([]step, error)
	Status(context.Context) (*Status, error)
	// kept are what an uninstalled service leaves, and why.
	kept() []string
}

// step is one thing to do. It says itself what it does, for whoever
// watches and for --dry-run.
type step struct {
	say  string
	done func(changed bool) bool     // nothing to do; changed is whether a step before did something
	do   func(context.Context) error // nil where it is only to be said
}

// Status is how a service is doing.
type Status struct {
	Installed bool   `json:"installed"`
	Scope     string `json:"scope"` // system or user
	Manager   string `json:"manager"`
	State     string `json:"state"` // active, inactive, failed, …
	Running   bool   `json:"running"`
	Enabled   bool   `json:"enabled"` // starts by itself
	PID       int    `json:"pid,omitempty"`
	Since     string `json:"since,omitempty"`
	Socket    string `json:"socket,omitempty"`
	Restarts  int    `json:"restarts"`
	Result    string `json:"result,omitempty"` // of the last run
	Status    string `json:"status,omitempty"` // what the daemon said last
	Files     string `json:"files,omitempty"`  // as shipped, changed, or from the package
	Log       string `json:"log"`              // the command that shows it
}
