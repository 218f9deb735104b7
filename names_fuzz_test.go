package ckptsidecar_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var (
	agentName = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z`)
	runName   = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._:@+-]{0,254}\z`)
	version7  = regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\z`)
)

// FuzzNames: a name is accepted exactly if the contract allows it, letter by
// letter, and an accepted name can never be a path, a header or a separate
// line.
// TestWrongCharacterIsQuotedAsTyped: a character of several bytes is named whole.
func TestWrongCharacterIsQuotedAsTyped(t *testing.T) {
	err := ckpt.CheckAgentName("cödér")
	if want := `the agent name "cödér" has 'ö' at position 2: `; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"a", "agent-1", "..", "a/b", "a\\b", ".hidden", "-rf", "a\x00b", "a\nb", "é", "\xff", "main", "thread:1@host+2", "01900000-0000-7000-8000-000000000001",
		strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("k", 512), "K", "ſ", "a ",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for what, is := range map[string][2]bool{
			"agent": {ckpt.CheckAgentName(name) == nil, agentName.MatchString(name)},
			"run":   {ckpt.CheckRunName(name) == nil, runName.MatchString(name)},
			"id":    {ckpt.CheckID(name) == nil, version7.MatchString(name)},
		} {
			if is[0] != is[1] {
				t.Errorf("%q as %s: taken %t, and should be %t", name, what, is[0], is[1])
			}
		}
		if ckpt.CheckAgentName(name) == nil && (path.Base(name) != name || path.Clean("/x/"+name) != "/x/"+name) {
			t.Errorf("%q could be a path", name)
		}
		if ckpt.CheckKey("key", name) == nil && (name == "" || len(name) > ckpt.MaxKey || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\r\n\t\x7f")) {
			t.Errorf("%q is taken for a key", name)
		}
		for _, err := range []error{ckpt.CheckAgentName(name), ckpt.CheckRunName(name), ckpt.CheckID(name), ckpt.CheckKey("key", name)} {
			if err != nil && ckpt.CodeOf(err) != ckpt.CodeInvalid {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}
