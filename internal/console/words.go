package console

import (
	"encoding/base64"
	"html/template"
	"net/url"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// words are what templates call.
var words = template.FuncMap{
	"icon": draw.Icon, "bytes": draw.Bytes, "count": draw.Count, "short": draw.ShortCount, "age": draw.Age, "clock": draw.Clock, "dash": draw.Dashes,
	"stamp": func(t ckpt.Time) int64 { return t.UnixMilli() }, "iso": func(t ckpt.Time) string { return t.String() },
	"kind": draw.KindWord, "pack": pack, "status": draw.StatusBadge, "mark": draw.KindMark, "percent": percentOf,
	"cut":  func(n int, s string) string { return draw.FirstLine(s, n) },
	"list": func(v ...any) []any { return v }, "dollars": draw.Dollars, "seg": url.PathEscape, "query": url.QueryEscape,
	"bar": draw.Bar, "share": draw.Percent, "slice8": func(s string) string { return s[:min(8, len(s))] },
	"plural": func(n int, one string) string { return draw.Plural(n, one) }, "long": draw.LongClock,
}

// pack carries a text through a form or an address as it is, whatever is in it.
func pack(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func unpack(s string) string {
	b, _ := base64.RawURLEncoding.DecodeString(s)
	return string(b)
}

// percentOf is percent for templates, which hand over pointers.
func percentOf(f *float64) string { return draw.Percent(*f) }
