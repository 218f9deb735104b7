package console

import (
	"net/url"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestFindCheckpoints finds checkpoints by the beginning of an id and by label.
func TestFindCheckpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wanted := w.save("coder", "one", `{"n": 1}`)
	other := w.save("bot", "two", `{"n": 1}`)
	if _, err := w.client.Patch(t.Context(), wanted.ID, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"stage": "tested"}}); err != nil {
		t.Fatal(err)
	}
	common := 0
	for plainID(wanted.ID)[common] == plainID(other.ID)[common] {
		common++
	}
	if common < minPrefix {
		t.Fatal("the ids have nothing in common")
	}
	for _, c := range []struct {
		name, text  string
		first, both bool
	}{
		{"the whole id", wanted.ID, true, false},
		{"its beginning", wanted.ID[:len(wanted.ID)-2], true, false},
		{"its beginning without hyphens, in upper case", strings.ToUpper(plainID(wanted.ID)[:common+1]), true, false},
		{"what both begin with", plainID(wanted.ID)[:minPrefix], true, true},
		{"three digits", wanted.ID[:3], false, false},
		{"a label", "stage=tested", true, false},
		{"another label", "stage=done", false, false},
	} {
		page := w.page("find?" + url.Values{"q": {c.text}}.Encode())
		has := func(saved *ckpt.Saved) bool { return strings.Contains(page, "?cp="+saved.ID) }
		if has(wanted) != c.first || has(other) != c.both {
			t.Errorf("%s, %q: the page has the first: %v, the other: %v", c.name, c.text, has(wanted), has(other))
		}
	}
}
