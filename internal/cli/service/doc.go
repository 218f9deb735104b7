// Package service has the command service: it installs the daemon with the service
// manager of this machine and manages it.
//
// This package may import internal/cli, internal/cli/term, internal/daemon,
// internal/osfile and packaging.
package service
