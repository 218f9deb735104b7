// Package packaging holds what tells a machine how to run the daemon: unit
// files of systemd, the installers of packages.
// They are embedded, so that `ckptsidecar service install` and the packages ship
// the same bytes.
//
// This package may import the standard library only.
package packaging

import (
	"embed"
	"fmt"
)

//go:embed systemd
var files embed.FS

// File is the text of a file of this folder: "systemd/ckptsidecar.service". It
// panics where there is none, because the names are constants of the program.
func File(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("packaging: %v", err))
	}
	return string(text)
}

// Unit is a file of systemd and where it goes.
type Unit struct {
	Name string // in this folder
	To   string // below the folder that the kind of installation has for its units
}

// Units are the files that systemd reads of a service: the system's, or a
// person's own.
func Units(user bool) []Unit {
	dir := "systemd/"
	if user {
		dir = "systemd/user/"
	}
	return []Unit{
		{dir + "ckptsidecar.service", "ckptsidecar.service"},
		{dir + "ckptsidecar.socket", "ckptsidecar.socket"},
	}
}

// Backoff makes the pauses between restarts grow. It is for systemd BackoffSince
// and newer, and goes beside the units.
var Backoff = Unit{"systemd/backoff.conf", "ckptsidecar.service.d/10-backoff.conf"}

// BackoffSince is the version of systemd that knows what Backoff says.
const BackoffSince = 254
