package main

import (
	"os"
	"path/filepath"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// nobodysFolder names the agent of a program that works in no folder of its own.
const nobodysFolder = "assistant"

// projectAgent is the agent where no command line names one: that of the
// environment, else the name of the project that a folder belongs to.
func (a *app) projectAgent(named, folder string) string {
	if named != "" {
		return named
	}
	if named = a.env("CKPTSIDECAR_AGENT"); named != "" {
		return named
	}
	return agentNameOf(filepath.Base(projectOf(folder)))
}

// projectOf is the folder of the repository that a folder lies in, else itself.
func projectOf(folder string) string {
	for dir := folder; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return folder
		}
	}
}

// agentNameOf makes a name for an agent out of that of a folder.
func agentNameOf(folder string) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && ckpt.CheckAgentName("a"+string(r)) == nil {
			return r
		}
		return '-'
	}, folder)
	name = strings.Trim(name, "._-")
	if len(name) > ckpt.MaxAgentName {
		name = name[:ckpt.MaxAgentName]
	}
	if name == "" {
		return nobodysFolder
	}
	return name
}
