package view

import (
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// DiffLine colors a line of a unified diff.
func DiffLine(line string, s *term.Style) string {
	switch {
	case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "):
		return s.Bold(line)
	case strings.HasPrefix(line, "@@"):
		return s.Cyan(line)
	case strings.HasPrefix(line, "-"):
		return s.Red(line)
	case strings.HasPrefix(line, "+"):
		return s.Green(line)
	}
	return line
}

// HashHead returns the beginning of a hash, which is enough to compare by eye.
func HashHead(hash string) string {
	if len(hash) > 16 {
		return hash[:16] + "…"
	}
	return cli.OrNone(hash)
}
