package console

import (
	"runtime"
	"strings"
	"testing"
)

// TestSystemTellsSettings shows the settings in force of a real daemon.
func TestSystemTellsSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := w.page("system")
	_, settings, _ := strings.Cut(page, `id="settings"`)
	for _, want := range []string{"backup.keep", w.client.Socket, "default"} {
		if !strings.Contains(settings, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestStorageComesInTwoParts checks what the page contains at once, and what
// its script requests afterwards.
func TestStorageComesInTwoParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 5 {
		w.save("coder", "one", `{"text": "`+strings.Repeat("x", 2000)+`"}`)
	}
	first, whole := w.page("storage"), w.page("storage?whole")
	if strings.Contains(first, "What stays, and why") || !strings.Contains(first, `data-later="`+w.base+`storage?whole"`) {
		t.Error("the page waits for the forecast")
	}
	if !strings.Contains(whole, "What stays, and why") || strings.Contains(whole, "data-later") {
		t.Error("the second part has no forecast")
	}
	if !strings.Contains(whole, "6.0 kB") {
		t.Errorf("the logical bytes of three states are not told: %s", whole)
	}
}

// TestTheTreeOfALongListNeedsLittleMemory: a page shows the last elements of a list, so that it
// need not keep the others.
func TestTheTreeOfALongListNeedsLittleMemory(t *testing.T) {
	state := []byte(`{"list":[` + strings.Repeat("0,", mostDiffState/2-10) + `0]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	root, ok := treeOf(state, nil, nil)
	runtime.ReadMemStats(&after)
	if !ok || root.Kids[0].Size == "" || len(root.Kids[0].Kids) != 4 {
		t.Errorf("the tree is %+v", root)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("a state of %d MiB took %d MiB", len(state)>>20, used>>20)
	}
}
