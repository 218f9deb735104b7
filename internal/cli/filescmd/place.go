package filescmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/files"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// place is a folder whose files are kept, and the folder in which this program stores
// what it knows about it.
type place struct {
	root   string
	folder string // for indexes and journals
}

// placeOf returns the place of a named folder. For "", it takes the project of the
// current folder.
func placeOf(a *cli.App, named string) (*place, error) {
	root, err := rootOf(named)
	if err != nil {
		return nil, err
	}
	folder, err := StateFolder(a.Env)
	if err != nil {
		return nil, err
	}
	return &place{root: root, folder: folder}, nil
}

// rootOf returns the path of a named folder, without links. For "", it takes the project
// of the current folder.
func rootOf(named string) (string, error) {
	if named == "" {
		here, err := os.Getwd()
		if err != nil {
			return "", err
		}
		named = hook.Root(here)
	}
	root, err := filepath.Abs(named)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	return root, nil
}

// argument returns what to add to a command so that it takes this folder, "" if it does so
// anyway. flag comes before the path, and is "" or ends with a space.
func (p *place) argument(flag string) string {
	if here, err := rootOf(""); err == nil && here == p.root {
		return ""
	}
	return " " + flag + ckpt.ShellWord(p.root)
}

var errNoFolder = errors.New("there is no folder for the index of files: set CKPTSIDECAR_FILES")

// StateFolder returns the folder for indexes and journals.
func StateFolder(env func(string) string) (string, error) {
	if folder := env("CKPTSIDECAR_FILES"); filepath.IsAbs(folder) {
		return folder, nil
	}
	if folder := userFolder(env); folder != "" {
		return folder, nil
	}
	return "", errNoFolder
}

// agentOf returns the named agent, or else the agent of a folder's project.
func agentOf(a *cli.App, named, root string) (string, error) {
	if agent := a.NamedAgent(named); agent != "" {
		return agent, ckpt.CheckAgentName(agent)
	}
	return hook.ProjectOf(root).Agent, nil
}

// treesOf returns the heads of the trees that a checkpoint names.
func treesOf(ctx context.Context, a *cli.App, checkpoint string) ([]ckpt.Tree, error) {
	page, err := a.Client().Files(ctx, ckpt.FilesFilter{Checkpoint: checkpoint, Limit: 1})
	if err == nil && len(page.Trees) == 0 {
		err = ckpt.Errorf(ckpt.CodeNotFound, "checkpoint %s has no files", checkpoint)
	}
	if err != nil {
		return nil, err
	}
	return page.Trees, nil
}

// rootIn returns the root that a person means: the folder of that name here if a tree has it,
// else the name as it is. The trees may be of another computer.
func rootIn(trees []ckpt.Tree, named string) (string, error) {
	root, err := rootOf(named)
	if err == nil && slices.ContainsFunc(trees, func(t ckpt.Tree) bool { return t.Root == root }) {
		return root, nil
	}
	return named, err
}

// treeOf returns the head of the tree with this root that a checkpoint names. Without a
// root, the checkpoint must have exactly one tree.
func treeOf(ctx context.Context, a *cli.App, checkpoint, root string) (*ckpt.Tree, error) {
	trees, err := treesOf(ctx, a, checkpoint)
	if err == nil && root != "" {
		root, err = rootIn(trees, root)
	}
	switch {
	case err != nil:
		return nil, err
	case root == "" && len(trees) > 1:
		return nil, cli.Usagef("the checkpoint has files of %d folders: choose one with --root, for example %s", len(trees), trees[0].Root)
	case root == "":
		return &trees[0], nil
	}
	for i := range trees {
		if trees[i].Root == root {
			return &trees[i], nil
		}
	}
	if len(trees) == 1 {
		return &trees[0], nil // the folder was moved, or is a copy
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound, "the checkpoint %s has no files of %s", checkpoint, root)
}

// entriesOf reads all entries of a tree.
func entriesOf(ctx context.Context, a *cli.App, checkpoint string, t *ckpt.Tree) (entries []ckpt.TreeEntry, err error) {
	err = cli.EachPage("", func(after string) (string, bool, error) {
		page, err := a.Client().Files(ctx, ckpt.FilesFilter{Checkpoint: checkpoint, Tree: t.ID, After: after})
		if err != nil {
			return "", false, err
		}
		entries = append(entries, page.Files...)
		if len(page.Trees) > 0 && after == "" {
			for i := range page.Trees {
				if page.Trees[i].ID == t.ID {
					t.LeftOut = page.Trees[i].LeftOut
				}
			}
		}
		return string(page.Next), page.Next != "", nil
	})
	if err != nil {
		return nil, err
	}
	whole := *t
	whole.Entries = entries
	if tree.ID(&whole) != t.ID {
		return nil, ckpt.Errorf(ckpt.CodeCorrupt, "the list of files of checkpoint %s is damaged: it does not match its id", checkpoint)
	}
	return entries, nil
}

// changesOf reads how the files of two checkpoints differ.
func changesOf(ctx context.Context, a *cli.App, from, to, root string) (diff *ckpt.FilesDiff, err error) {
	err = cli.EachPage("", func(after string) (string, bool, error) {
		page, err := a.Client().FilesDiff(ctx, ckpt.FilesDiffFilter{From: from, To: to, Root: root, After: after})
		if err != nil {
			return "", false, err
		}
		if diff == nil {
			diff = page
		} else {
			diff.Changes = append(diff.Changes, page.Changes...)
		}
		return string(page.Next), page.Next != "", nil
	})
	return diff, err
}

// shortID returns an id for a restore.
func shortID() (string, error) {
	b := make([]byte, 4)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}

// look scans a folder with the index, and stores nothing.
func (p *place) look(ctx context.Context, also []string) (*files.Found, error) {
	s := &files.Scanner{Root: p.root, Also: also}
	return s.Scan(ctx, files.ReadIndex(files.IndexPath(p.folder, p.root), p.root))
}
