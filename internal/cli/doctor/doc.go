// Package doctor has the command doctor: it looks for possible problems on this machine,
// and says what to do.
//
// This package may import the root package, internal/cli, internal/cli/service,
// internal/cli/term, internal/cli/view, internal/daemon, internal/fleet,
// internal/hook, internal/ipc/client and internal/osfile.
package doctor
