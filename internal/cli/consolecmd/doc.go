// Package consolecmd has the command console: it serves the pages of internal/console for
// the user who runs it, and opens them in a browser.
//
// This package may import internal/cli, internal/cli/doctor, internal/cli/term
// and internal/console.
package consolecmd
