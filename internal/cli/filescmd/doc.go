// Package filescmd has the commands files and rewind: they find the files of a folder,
// give the changed ones to the daemon, and restore them.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/files, internal/files/rewind, internal/hook, internal/ipc/client,
// internal/osfile and internal/tree.
package filescmd
