package hookcmd

import (
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

func TestHookTimeout(t *testing.T) {
	for _, c := range []struct {
		flag time.Duration
		env  string
		want time.Duration
	}{
		{0, "", usualTimeout},
		{0, "2s", 2 * time.Second},
		{time.Second, "2s", time.Second},
		{0, "soon", usualTimeout},
		{0, "1ms", usualTimeout},
		{0, "1h", usualTimeout},
	} {
		s := options{Timeout: c.flag}
		if got := s.timeout(func(string) string { return c.env }); got != c.want {
			t.Errorf("%+v: it takes %s", c, got)
		}
	}
	s := options{Timeout: time.Hour}
	if s.check() == nil {
		t.Error("an hour is taken")
	}
	s = options{Timeout: time.Second, SaveEvery: 20}
	if got := s.words(); len(got) != 2 || got[0] != "--timeout" || got[1] != "1s" {
		t.Errorf("it is written as %q", got)
	}
}

// TestInstalledOptionsAreReadAgain: what install writes is what the hook gets.
func TestInstalledOptionsAreReadAgain(t *testing.T) {
	want := options{
		Agent: "a", Risky: []string{"-rf", "^shell x y"}, NotRisky: []string{"--dry-run"}, SaveEvery: 3, Timeout: time.Second,
		Files: true, FilesWait: time.Second, Include: []string{"-x", "!y"}, Exclude: []string{"--z"},
	}
	if err := want.check(); err != nil {
		t.Fatal(err)
	}
	var g grammar
	parser, err := kong.New(&g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(want.words()); err != nil {
		t.Fatalf("%q: %v", want.words(), err)
	}
	if diff := cmp.Diff(want, g.options); diff != "" {
		t.Error(diff)
	}
}

func TestTheLongestCall(t *testing.T) {
	none := func(string) string { return "" }
	s := options{Timeout: 10 * time.Second, FilesWait: 15 * time.Second}
	if got := s.most(none); got != 10*time.Second {
		t.Errorf("without files it takes %s", got)
	}
	s.Files = true
	if got := s.most(none); got != 25*time.Second {
		t.Errorf("with files it takes %s", got)
	}
}
