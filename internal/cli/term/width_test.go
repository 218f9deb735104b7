package term

import (
	"strings"
	"testing"
)

// TestParagraphsFitTheWindow: text is broken between words on a terminal whose width is known, and nowhere else.
func TestParagraphsFitTheWindow(t *testing.T) {
	text := strings.Repeat("word ", 20) + "\x1b[2Jred"
	for _, tt := range []struct {
		style Style
		lines int
	}{{Style{Terminal: true, width: 40}, 4}, {Style{Terminal: true}, 1}, {Style{width: 40}, 1}, {Style{width: 40, sized: true}, 4}} {
		var out strings.Builder
		Paragraph(&out, &tt.style, 2, text)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != tt.lines {
			t.Errorf("%+v: %d lines: %q", tt.style, len(lines), lines)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "  ") || strings.Contains(line, "\x1b") || tt.lines > 1 && Visible(line) > 40 {
				t.Errorf("%+v: %q", tt.style, line)
			}
		}
	}
}
