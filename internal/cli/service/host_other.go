//go:build !linux && !windows

package service

import (
	"errors"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

func NewHost(*cli.App, bool) (Host, error) {
	return nil, errors.New("services are supported only on Linux and Windows: start `ckptsidecar serve` yourself as the user whose agents call it; " +
		"autostart in the clients starts it too")
}
