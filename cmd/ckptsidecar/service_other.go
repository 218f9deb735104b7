//go:build !linux && !darwin && !windows

package main

import "errors"

func newServiceHost(*app, bool) (serviceHost, error) {
	return nil, errors.New("services are installed on Linux, macOS and Windows only: start `ckptsidecar serve` with what starts services here")
}
