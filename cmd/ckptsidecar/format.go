package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// bytesText is a size for people: three digits that matter.
func bytesText(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		value /= 1000
		if value < 999.5 || unit == "TB" {
			return digits(value) + " " + unit
		}
	}
	return ""
}

func digits(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// timeText is a moment in the reader's own zone.
func timeText(t ckpt.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// ago is how long before now a moment was, in one unit.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s ago"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min ago"
	case d < 2*ckpt.Day:
		return strconv.Itoa(int(d/time.Hour)) + " h ago"
	}
	return strconv.Itoa(int(d/ckpt.Day)) + " days ago"
}

// count is a number with its noun: "1 checkpoint", "3 checkpoints".
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// labelText is labels as they are typed: k=v, in order.
func labelText(labels ckpt.Labels) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return strings.Join(list, " ")
}

// marks are what a reader must know of a checkpoint at a glance.
func marks(c *ckpt.Checkpoint, s *style) string {
	var list []string
	if c.Pinned {
		list = append(list, s.green("pinned"))
	}
	if c.Suspect {
		list = append(list, s.yellow("suspect"))
	}
	return strings.Join(list, " ")
}

// writeJSON writes one value, indented for people who read JSON.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
