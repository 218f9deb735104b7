package driftcmd

import (
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

func shortened(text string, most int) string {
	text = view.FirstLine(text)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
