//go:build !linux && !windows

package consolecmd

import (
	"context"
	"os/exec"
)

// browse opens a file in the user's browser.
func browse(ctx context.Context, name string) error {
	return exec.CommandContext(ctx, "open", name).Run()
}
