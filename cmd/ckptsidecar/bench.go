package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
)

// benchCmd has the measurements that users can run on their own disk. The module bench has more.
type benchCmd struct {
	Save measure.Save `cmd:"" help:"Measure durable saves a second over the socket, and compare with a plain log on the same disk."`
}

// measuring returns what a measurement needs from this program.
func (a *app) measuring() *measure.Env {
	return &measure.Env{
		Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr, Out: a.Out, Err: a.Err,
		JSON: a.JSON, Version: programVersion(), Where: a.databaseFolder, Start: a.StartDaemon,
	}
}

// databaseFolder returns the folder where the database is or would be. If that does not exist, it
// returns the nearest existing folder above it.
func (a *app) databaseFolder() (string, error) {
	config, err := new(cli.SettingFlags).Settings(a.App)
	if err != nil {
		return "", fmt.Errorf("ckptsidecar cannot find the folder of your database: name a folder with --dir: %w", err)
	}
	dir := filepath.Dir(config.Database)
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || filepath.Dir(dir) == dir {
			return dir, nil
		}
		dir = filepath.Dir(dir)
	}
}
