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

// lines returns the lines of a table on a terminal of this width.
func lines(table *Table, width int) []string {
	var b bytes.Buffer
	table.Write(&b, &Style{width: width})
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func TestTableFitsTheTerminal(t *testing.T) {
	const id = "01a205f4-4faf-7129-9181-edfdc7009c8"
	table := func() *Table {
		table := NewTable("NAME", ">SIZE", "~NOTE", "?>PID", "#ID")
		table.Add("builder", "10 kB", strings.Repeat("long ", 20), "4711", id+"1")
		table.Add("größer", "1 B", "東京は日本の首都です、そして大きいです、とても大きいです。", "1", id+"2")
		return table
	}
	for width := 1; width < 200; width++ {
		for _, line := range lines(table(), width) {
			if n := Visible(line); n > width {
				t.Fatalf("width %d: %d columns: %q", width, n, line)
			}
		}
	}
	for _, tt := range []struct {
		width      int
		want, lack string // of the first row
	}{
		{0, id + "1", "…"},
		{200, id + "1", "…"}, // the ids differ only in their last digit
		{100, "…  4711", "never"},
		{80, "…", "4711"},
	} {
		row := lines(table(), tt.width)[1]
		if !strings.Contains(row, tt.want) || strings.Contains(row, tt.lack) {
			t.Errorf("width %d: %q, want %q and not %q", tt.width, row, tt.want, tt.lack)
		}
	}
}

func TestIDsAreAsShortAsTheyDiffer(t *testing.T) {
	table := NewTable("#ID")
	table.Add("01a205f4-4faf-7129-9181-edfdc7009c87")
	table.Add("01a205f4-4faf-7a29-9181-edfdc7009c87")
	want := []string{"ID", "01a205f4-4faf-71", "01a205f4-4faf-7a"}
	if diff := cmp.Diff(want, lines(table, 80)); diff != "" {
		t.Error(diff)
	}
}

func TestColorsAsTheEnvironmentSays(t *testing.T) {
	for _, tt := range []struct {
		env, color string
		want       bool
	}{
		{"", "auto", false}, {"CLICOLOR_FORCE=1", "auto", true}, {"CLICOLOR_FORCE=0", "auto", false},
		{"CLICOLOR_FORCE=1 NO_COLOR=1", "auto", false}, {"NO_COLOR=1", "always", true}, {"CLICOLOR_FORCE=1", "never", false},
	} {
		s := NewStyle(&bytes.Buffer{}, func(name string) string {
			for _, set := range strings.Fields(tt.env) {
				if key, value, _ := strings.Cut(set, "="); key == name {
					return value
				}
			}
			return ""
		})
		s.Choose(tt.color, false)
		if s.colour != tt.want {
			t.Errorf("%s --color %s: %v", tt.env, tt.color, s.colour)
		}
	}
}

// TestWrappedColumns: a column that is asked for is wrapped between words, and a column that the user has typed is left out.
func TestWrappedColumns(t *testing.T) {
	table := NewTable("AGENT", "RULE", "?FAMILY", "&WHEN IT FIRES", "#ID")
	table.Typed(true, "AGENT")
	table.Add("coder", "repeat", "loops", "one call gave the same result again and again", "01a22440-87fb-7ec2-97c4-3de98b8abce4")
	table.Add("coder", "cycle", "loops", "a round", "01a22441-87fb-7ec2-97c4-3de98b8abce4")
	var b strings.Builder
	table.Write(&b, &Style{width: 48})
	const want = `RULE    WHEN IT FIRES              ID
repeat  one call gave the same     01a22440-87fb
        result again and again
cycle   a round                    01a22441-87fb
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
