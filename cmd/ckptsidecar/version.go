package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// version is the release. Tests of upgrades build programs of other versions with the linker.
var version = ckpt.Release

type versionCmd struct{}

type versionShape struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	SQLite   string `json:"sqlite"`
}

// daemonWait is how long version waits for the daemon's version.
const daemonWait = 2 * time.Second

func (c *versionCmd) Run(ctx context.Context, a *app) error {
	v := versionShape{
		Version: programVersion(), Revision: revision(), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, SQLite: daemon.SQLiteVersion(),
	}
	if a.JSON {
		return a.WriteJSON(v)
	}
	term.Printf(a.Stdout, "ckptsidecar %s (SQLite %s, %s, %s)\n", v.Version, v.SQLite, v.Go, v.Platform)
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	theirs, err := a.Client().Version(ctx)
	if err != nil {
		term.Printf(a.Stdout, "daemon      %s\n", a.Out.Dim("none answers"))
		return nil
	}
	term.Printf(a.Stdout, "daemon      %s (API %d, schema %d)\n", theirs.Version, theirs.API, theirs.Schema)
	if why := tooDifferent(v.Version, theirs); why != "" {
		a.Tell("%s %s", a.Err.Yellow("the versions do not fit together:"), why)
	}
	return nil
}

// apiVersion is the number in the paths of the API that this program uses.
const apiVersion = 1

// tooDifferent returns the reason why this program may not understand a daemon, "" if it does. Releases of the same
// major and minor version understand each other. Releases are not compared if one of the two has no number.
func tooDifferent(mine string, theirs *ckpt.Version) string {
	switch {
	case theirs.API != apiVersion:
		return fmt.Sprintf("this program speaks version %d of the API, and the daemon speaks version %d: "+
			"update the older one", apiVersion, theirs.API)
	case theirs.Schema > ckpt.SchemaVersion:
		return fmt.Sprintf("the daemon's database has schema %d, and this program knows %d: update this program", theirs.Schema, ckpt.SchemaVersion)
	case theirs.Schema < ckpt.SchemaVersion:
		return fmt.Sprintf("the daemon's database has schema %d, and this program is made for %d: restart or update the daemon",
			theirs.Schema, ckpt.SchemaVersion)
	case series(mine) != series(theirs.Version) && series(mine) != "" && series(theirs.Version) != "":
		return fmt.Sprintf("this program is %s, the daemon is %s: update the older one, and restart the daemon", mine, theirs.Version)
	}
	return ""
}

// series returns the major and minor number of a release, "" for a build that has none.
func series(version string) string {
	return strings.TrimPrefix(releaseSeries.FindString(version), "v")
}

// programVersion returns the release that this program was built as.
func programVersion() string { return version }

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

var releaseSeries = regexp.MustCompile(`^v?\d+\.\d+`)
