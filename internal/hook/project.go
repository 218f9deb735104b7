package hook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Project is the folder that a coding agent works in, and the names of the agent for
// it.
type Project struct {
	Folder string // of the repository that contains the agent's folder, otherwise that folder; links are resolved
	ID     string // distinguishes it from other folders of the same name
	Agent  string // from the folder's name and ID
	Former string // from the folder's name only, as earlier versions did
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
	p.Former = agentNameOf(filepath.Base(Root(folder)))
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

// Choose returns the agent under which a project is recorded. Earlier versions named
// agents by the folder's name only. Such an agent is kept if nothing was recorded under
// the new name, if at least one of its sessions was in this folder, and if none is
// known to have been in another.
func (p Project) Choose(ctx context.Context, client *client.Client) (string, error) {
	former, err := client.Runs(ctx, ckpt.RunFilter{Agent: p.Former, Limit: recent})
	if err != nil {
		return p.Agent, ignore(err, ckpt.CodeNotFound)
	}
	now, err := client.Runs(ctx, ckpt.RunFilter{Agent: p.Agent, Limit: 1})
	if err == nil && len(now.Runs) > 0 || ignore(err, ckpt.CodeNotFound) != nil {
		return p.Agent, err
	}
	ours := false
	for i := range former.Runs {
		of, err := p.has(ctx, client, &former.Runs[i])
		switch {
		case err != nil || of == another:
			return p.Agent, err
		case of == same:
			ours = true
		}
	}
	if ours {
		return p.Former, nil
	}
	return p.Agent, nil
}

// origin says whether a run is of the same project.
type origin int

const (
	unknown origin = iota
	same
	another
)

// has reports whether a run was a session in this project. Runs of earlier versions
// have no label for that, but their checkpoints name the folder.
func (p Project) has(ctx context.Context, client *client.Client, r *ckpt.Run) (origin, error) {
	if r.Labels["product"] == "" {
		return unknown, nil // not a session of a coding agent
	}
	if id := r.Labels[projectLabel]; id != "" {
		return p.compare(id), nil
	}
	latest, err := client.Latest(ctx, ckpt.CheckpointFilter{Agent: r.Agent, Run: r.Run}, true)
	if err != nil {
		return unknown, ignore(err, ckpt.CodeNotFound)
	}
	return p.of(readSnapshot(latest)), nil
}

func (p Project) compare(id string) origin {
	if id == p.ID {
		return same
	}
	return another
}

// of reports whether a snapshot was taken in this project.
func (p Project) of(s *Snapshot) origin {
	if s == nil || s.Folder == "" {
		return unknown
	}
	return p.compare(ProjectOf(s.Folder).ID)
}
