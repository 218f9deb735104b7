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

// Project is the folder that a coding agent works for, and the names of the
// agent that stands for it.
type Project struct {
	Folder string // of the repository that the agent's folder lies in, else that folder; links are resolved
	ID     string // tells it from other folders of the same name
	Agent  string // the name of its folder and ID
	Former string // the name of its folder alone: what earlier versions took
}

// nobodysFolder names the agent of a program that works in no folder of its own.
const nobodysFolder = "assistant"

// projectLabel is the label of a run that says which project it is of.
const projectLabel = "project"

// ProjectOf is the project that a folder belongs to.
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

// Root is the folder of the repository that a folder lies in, else the folder itself.
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

// resolved is the one path of a folder, however it was named.
func resolved(folder string) string {
	if path, err := filepath.EvalSymlinks(folder); err == nil {
		folder = path
	}
	if path, err := filepath.Abs(folder); err == nil {
		folder = path
	}
	return filepath.Clean(folder)
}

// agentNameOf makes a name for an agent out of that of a folder.
func agentNameOf(folder string) string {
	name := ckpt.AgentNameOf(folder)
	if name == "" {
		return nobodysFolder
	}
	return name
}

// Choose answers the agent under which a project is recorded. Earlier versions
// named agents by the folder alone. Such an agent is kept if nothing was recorded
// under the new name, and if what is known of its sessions is of this folder.
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

// origin says of which project a run is.
type origin int

const (
	unknown origin = iota
	same
	another
)

// has says whether a run was a session in this project. Runs of earlier versions
// have no label for that, but their checkpoints name the folder.
func (p Project) has(ctx context.Context, client *client.Client, r *ckpt.Run) (origin, error) {
	if r.Labels["product"] == "" {
		return unknown, nil // no session of a coding agent
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

// of says whether a snapshot was taken in this project.
func (p Project) of(s *Snapshot) origin {
	if s == nil || s.Folder == "" {
		return unknown
	}
	return p.compare(ProjectOf(s.Folder).ID)
}
