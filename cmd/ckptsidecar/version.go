package main

import (
	"runtime"
	"runtime/debug"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// version is set by the Makefile for releases.
var version = ""

type versionCmd struct{}

type versionShape struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	SQLite   string `json:"sqlite"`
}

func (c *versionCmd) Run(a *app) error {
	v := versionShape{
		Version: programVersion(), Revision: revision(), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, SQLite: daemon.SQLiteVersion(),
	}
	if a.JSON {
		return term.WriteJSON(a.Data(), v)
	}
	term.Printf(a.Stdout, "ckptsidecar %s (SQLite %s, %s, %s)\n", v.Version, v.SQLite, v.Go, v.Platform)
	return nil
}

// programVersion is the release, or what Go knows of how this was built.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
