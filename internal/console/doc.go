// Package console serves pages that show what agents do and let an operator put it
// right. It is a process of the caller's own: it listens on loopback and speaks to
// the daemon as its caller, so that it has no rights of its own. The daemon has no
// listener for it and does not know it. docs/CONSOLE.md describes the pages and what
// keeps others out.
//
// Pages are HTML and SVG that Go draws; internal/console/draw has the words and the
// drawings. One style sheet and one script are written by hand; the pages are complete
// without the script.
//
// This package may import the root package, internal/console/draw, internal/fleet,
// internal/ipc/client, internal/jsontext, internal/survey and internal/wellformed.
package console
