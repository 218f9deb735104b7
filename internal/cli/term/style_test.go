package term

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTableIsAlignedWhateverItsColours(t *testing.T) {
	for _, s := range []*Style{{}, {colour: true}} {
		table := NewTable("NAME", ">SIZE", "NOTE")
		table.Add(s.Red("a"), "1", "x")
		table.Add("größer", "1000", s.Green("y"))
		var b bytes.Buffer
		table.Write(&b, s)
		got := b.String()
		for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"} {
			got = strings.ReplaceAll(got, code, "")
		}
		want := "NAME    SIZE  NOTE\na          1  x\ngrößer  1000  y\n"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("colour %v:\n%s", s.colour, diff)
		}
	}
}

func TestNoColourWhereNobodySees(t *testing.T) {
	if s := NewStyle(&bytes.Buffer{}, func(string) string { return "" }); s.colour || s.Red("x") != "x" {
		t.Error("a buffer was coloured")
	}
}
