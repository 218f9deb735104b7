// Package console serves pages that show what agents do and that let an operator fix
// problems. It is a process of the caller: it listens on loopback and calls the daemon as
// its caller, so that it has no additional rights. The daemon has no listener for it and
// does not know it. docs/CONSOLE.md describes the pages and how other users are kept out.
//
// Go draws the pages as HTML and SVG; internal/console/draw has the wording and the
// drawings. One style sheet and one script are written by hand. The pages are complete
// without the script.
//
// This package may import the root package, internal/console/draw, internal/fleet,
// internal/ipc/client, internal/jsontext, internal/survey and internal/wellformed.
package console
