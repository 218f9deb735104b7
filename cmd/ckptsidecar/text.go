package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

func kindText(k ckpt.Kind, s *term.Style) string {
	switch k {
	case ckpt.KindRecovery:
		return s.Yellow(string(k))
	case ckpt.KindPreOperation:
		return s.Cyan(string(k))
	}
	return string(k)
}

// labelText formats labels as they are typed: k=v, in order.
func labelText(labels ckpt.Labels) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return strings.Join(list, " ")
}

// came returns the outcome, shortened to fit a line.
func came(result ckpt.JSON, problem ckpt.Ref) string {
	text := outcome(result, problem)
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:59]) + "…"
	}
	return text
}

// outcome returns the first line of the problem, else of the result, for a table that cuts it.
func outcome(result ckpt.JSON, problem ckpt.Ref) string {
	text := view.FirstLine(string(problem))
	if problem == "" {
		text = view.FirstLine(string(result))
	}
	if text == "null" {
		return ""
	}
	return text
}

// isText says whether a terminal can show these bytes without harm.
func isText(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f || r >= 0x80 && r < 0xa0
	})
}

// jsonOf returns an optional JSON argument. The check of the request finds its mistakes.
func jsonOf(text string) ckpt.JSON {
	if text == "" {
		return nil
	}
	return ckpt.JSON(text)
}

func resultText(result ckpt.JSON) string {
	if text := came(result, ""); text != "" {
		return "; its result is " + text
	}
	return ""
}
