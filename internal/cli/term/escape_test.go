package term

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"größer — 日本 🎉 …": "größer — 日本 🎉 …", "\u200d": "\u200d", // joins the parts of an emoji
		"a\x1b[2Jb": `a\u001b[2Jb`, "\x1b[31mred\x1b[0m": "\x1b[31mred\x1b[0m", "\x1b[5m": `\u001b[5m`, "\x1b[": `\u001b[`,
		"\u009b\u0085\x7f": `\u009b\u0085\u007f`, "a\nb\tc\r": `a\u000ab\u0009c\u000d`,
		"\u202eb\u2066\u200f\u2028": `\u202eb\u2066\u200f\u2028`, "\U000e0041": `\udb40\udc41`,
		"\x9b\xff": `\x9b\xff`, "\xe2\x82": `\xe2\x82`, "\ufffd\x1b": "\ufffd" + `\u001b`,
	} {
		if got := Escape(text); got != want {
			t.Errorf("Escape(%q) = %q, want %q", text, got, want)
		}
		if got := Escape(Escape(text)); got != want {
			t.Errorf("twice it is %q, want %q", got, want)
		}
	}
}

// TestNothingHarmfulIsForgotten compares our list with Unicode's: each control
// or format character is either escaped or listed here.
func TestNothingHarmfulIsForgotten(t *testing.T) {
	shown := map[rune]string{
		0xad: "a hyphen where a line breaks", 0x200c: "keeps letters apart", 0x200d: "joins emoji",
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r < utf8.MaxRune && unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) && !harmful(r) {
			t.Errorf("%U is not escaped", r)
		}
		if unicode.Is(unicode.Cf, r) && !harmful(r) && shown[r] == "" && !unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Kaithi, unicode.Egyptian_Hieroglyphs, unicode.Duployan) &&
			!(r >= 0x1bca0 && r <= 0x1bca3) && !(r >= 0x1d173 && r <= 0x1d17a) && r != 0x180e && r != 0x8e2 && !(r >= 0x600 && r <= 0x6dd) {
			t.Errorf("%U formats and is not escaped", r)
		}
	}
}

func TestPrintfEscapesEveryText(t *testing.T) {
	var b bytes.Buffer
	type named string
	Printf(&b, "%s|%v|%s|%-4s|%d|%v|%s\n", "a\n", errors.New("b\n"), named("c\n"), "d", 7, []string{"e\n"}, bytes.NewBufferString("f\n"))
	if want := `a\u000a|b\u000a|c\u000a|d   |7|[e\u000a]|f\u000a` + "\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestWriter writes a text in all possible pieces.
func TestWriter(t *testing.T) {
	text := "größer\n\t日本\x1b[31m\x1b[2J\u202e\xff🎉"
	plain := "größer\n\t日本" + `\u001b[31m\u001b[2J\u202e\xff` + "🎉"
	for cut := range len(text) {
		for _, colored := range []bool{false, true} {
			var b bytes.Buffer
			w := NewWriter(&b, &Style{colour: colored})
			if strings.Contains(text[max(0, cut-4):min(len(text), cut+4)], "\x1b[31m") || cut > 0 && strings.HasPrefix(text[cut-1:], "[31m") {
				continue // a color code is written in one piece
			}
			for _, part := range []string{text[:cut], text[cut:]} {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			want := plain
			if colored {
				want = strings.Replace(plain, `\u001b[31m`, "\x1b[31m", 1)
			}
			if got := b.String(); got != want && !(colored && got == plain) {
				t.Errorf("cut at %d, colored %v: %q, want %q", cut, colored, got, want)
			}
		}
	}
	var b bytes.Buffer
	w := NewWriter(&b, &Style{})
	fmt.Fprint(w, "\xe2\x82")
	if err := w.Flush(); err != nil || b.String() != `\xe2\x82` {
		t.Errorf("%q, %v", &b, err)
	}
}

func TestCellsAndPairsAreOneLine(t *testing.T) {
	var b bytes.Buffer
	table := NewTable("A")
	table.Add("x\ny")
	table.Write(&b, &Style{})
	pairs := &Pairs{}
	pairs.Add("k\n", "v\n")
	pairs.Write(&b, &Style{})
	if want := "A\n" + `x\u000ay` + "\n" + `k\u000a  v\u000a` + "\n"; b.String() != want {
		t.Errorf("%q, want %q", &b, want)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := Escape(text)
		for rest := got; rest != ""; {
			if n := colorCode(rest); n > 0 {
				rest = rest[n:]
				continue
			}
			r, n := utf8.DecodeRuneInString(rest)
			if r == utf8.RuneError && n == 1 || harmful(r) {
				t.Fatalf("%q keeps %q", got, r)
			}
			rest = rest[n:]
		}
	})
}
