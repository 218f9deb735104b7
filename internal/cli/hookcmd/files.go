package hookcmd

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/filescmd"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// snaps stores files in a separate process, because a hook must end soon.
type snaps struct {
	a                *cli.App
	include, exclude []string
}

func newSnaps(a *cli.App, include, exclude []string) *snaps {
	return &snaps{a: a, include: include, exclude: exclude}
}

// Interrupted reports whether a restore of the folder was interrupted.
func (h *snaps) Interrupted(folder string) bool { return filescmd.Interrupted(h.a.Env, folder) }

// Keep starts `files snap` for a checkpoint, and lets it run.
func (h *snaps) Keep(folder string, ref ckpt.RunRef, checkpoint string) (hook.Keeping, error) {
	state, err := filescmd.StateFolder(h.a.Env)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	sweepSnaps(state)
	k := &keeping{result: filepath.Join(state, "snap-"+checkpoint)}
	return k, h.snap(folder, ref, "--attach", checkpoint, "--result", k.result)
}

// Warm starts `files snap` without a checkpoint.
func (h *snaps) Warm(folder string, ref ckpt.RunRef) error {
	return h.snap(folder, ref, "--tree-only")
}

// snap starts `files snap`, which continues when the hook has ended, however the hook
// ends.
func (h *snaps) snap(folder string, ref ckpt.RunRef, how ...string) error {
	args := append([]string{"files", "snap", "--agent", ref.Agent, "--run", ref.Run}, how...)
	if ref.Epoch != nil {
		args = append(args, "--epoch", strconv.FormatInt(*ref.Epoch, 10))
	}
	if h.a.Socket != "" {
		args = append(args, "--socket", h.a.Socket)
	}
	for _, p := range h.include {
		args = append(args, "--include="+p)
	}
	for _, p := range h.exclude {
		args = append(args, "--exclude="+p)
	}
	cmd, err := h.a.Again(context.Background(), append(args, "--", folder)...)
	if err != nil {
		return err
	}
	cmd.Env = h.a.Environ
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// sweepSnaps removes results that no hook has taken, because its process was killed.
func sweepSnaps(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && strings.HasPrefix(entry.Name(), "snap-") && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(folder, entry.Name()))
		}
	}
}

// keeping waits for the result of a snap.
type keeping struct{ result string }

// takeEvery is how often a hook looks for the result of a snap.
const takeEvery = 2 * time.Millisecond

// Tree takes the tree from the snap. The process that removes the file with the result
// owns the tree.
func (k *keeping) Tree(ctx context.Context, most time.Duration) (tree, why string) {
	taken := k.result + ".taken"
	for end := time.Now().Add(most); ; {
		err := os.Rename(k.result, taken)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) || time.Now().After(end) {
			return "", ""
		}
		select {
		case <-ctx.Done():
			return "", ""
		case <-time.After(takeEvery):
		}
	}
	text, err := os.ReadFile(taken)
	_ = os.Remove(taken)
	var result filescmd.SnapResult
	if err != nil || json.Unmarshal(text, &result) != nil {
		return "", "the result of the snap cannot be read"
	}
	return result.Tree, result.Error
}
