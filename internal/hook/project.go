package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Project is the folder that a coding agent works in, and the names of the agent for
// it.
type Project struct {
	Folder string // of the repository that contains the agent's folder, otherwise that folder; links are resolved
	ID     string // distinguishes it from other folders of the same name
	Agent  string // from the folder's name and ID
}

// nobodysFolder is the name of the agent if the folder's name gives none.
const nobodysFolder = "assistant"

// projectLabel is the label of a run that holds the ID of its project.
const projectLabel = "project"

// ProjectOf returns the project that a folder belongs to.
func ProjectOf(folder string) Project {
	p := Project{Folder: resolved(Root(folder))}
	sum := sha256.Sum256([]byte(p.Folder))
	p.ID = hex.EncodeToString(sum[:4])
	p.Agent = agentNameOf(filepath.Base(p.Folder))
	if most := ckpt.MaxAgentName - len(p.ID) - 1; len(p.Agent) > most {
		p.Agent = p.Agent[:most]
	}
	p.Agent += "-" + p.ID
	return p
}

// Root returns the folder of the repository that contains a folder, otherwise the
// folder itself.
func Root(folder string) string {
	for dir := folder; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return folder
		}
	}
}

// resolved returns the one path of a folder, however the folder was named.
func resolved(folder string) string {
	if path, err := filepath.EvalSymlinks(folder); err == nil {
		folder = path
	}
	if path, err := filepath.Abs(folder); err == nil {
		folder = path
	}
	return filepath.Clean(folder)
}

// agentNameOf makes the name of an agent from the name of a folder.
func agentNameOf(folder string) string {
	name := ckpt.AgentNameOf(folder)
	if name == "" {
		return nobodysFolder
	}
	return name
}
