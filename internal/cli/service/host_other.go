//go:build !linux && !darwin && !windows

package service

import (
	"errors"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

func NewHost(*cli.App, bool) (Host, error) {
	return nil, errors.New("ckptsidecar installs services only on Linux, macOS and Windows: " +
		"start `ckptsidecar serve` with this system's own service manager")
}
