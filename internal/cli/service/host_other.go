//go:build !linux && !darwin && !windows

package service

import (
	"errors"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

func NewHost(*cli.App, bool) (Host, error) {
	return nil, errors.New("services are installed on Linux, macOS and Windows only: start `ckptsidecar serve` with what starts services here")
}
