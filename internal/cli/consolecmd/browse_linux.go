package consolecmd

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// browse opens a file in the user's browser.
func browse(ctx context.Context, name string) error {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "" {
		return errors.New("there is no screen")
	}
	return exec.CommandContext(ctx, "xdg-open", name).Run()
}
