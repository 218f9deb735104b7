// Package transfercmd has the commands export and import: agents as one file, and
// files of other systems as runs.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/foreign and internal/osfile.
package transfercmd
