package console

import (
	"encoding/base64"
	"html/template"
	"net/url"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// words are the functions for templates.
var words = template.FuncMap{
	"icon": draw.Icon, "bytes": draw.Bytes, "count": draw.Count, "short": draw.ShortCount, "age": draw.Age, "clock": draw.Clock, "dash": draw.Dashes, "rule": draw.RuleWords,
	"stamp": func(t ckpt.Time) int64 { return t.UnixMilli() }, "iso": func(t ckpt.Time) string { return t.String() },
	"kind": draw.KindWord, "pack": pack, "status": draw.StatusBadge, "mark": draw.KindMark, "percent": percentOf,
	"cut":  func(n int, s string) string { return draw.FirstLine(s, n) },
	"list": func(v ...any) []any { return v }, "dollars": draw.Dollars, "seg": url.PathEscape, "query": url.QueryEscape,
	"bar": draw.Bar, "share": draw.Percent, "slice8": func(s string) string { return s[:min(8, len(s))] },
	"plural": func(n int, one string) string { return draw.Plural(n, one) }, "long": draw.LongClock,
}

// pack encodes any text so that it passes unchanged through a form or an address.
func pack(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func unpack(s string) string {
	b, _ := base64.RawURLEncoding.DecodeString(s)
	return string(b)
}

// percentOf is Percent for templates, which pass pointers.
func percentOf(f *float64) string { return draw.Percent(*f) }
