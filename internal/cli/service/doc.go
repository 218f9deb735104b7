// Package service is the command service: it installs the daemon with the service
// manager of this machine and looks after it.
//
// This package may import internal/cli, internal/cli/term, internal/daemon,
// internal/osfile and packaging.
package service
