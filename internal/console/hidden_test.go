package console

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestTilesShowNoInventedNumbers: the daemon leaves out the numbers of all users for a caller who is not an administrator.
func TestTilesShowNoInventedNumbers(t *testing.T) {
	t.Parallel()
	st := statusForTests()
	st.Database, st.Writer = ckpt.DatabaseStatus{}, ckpt.WriterStatus{}
	p := &pulse{}
	p.add(noon.Time, st)
	tiles := append(pulseTiles(p, overviewForTests()), viewStorage(frameForTests(), st, agentsForTests(nil), policiesForTests(), nil).Tiles...)
	for _, tile := range tiles {
		switch tile.Name {
		case "Writes a second", "Commit, flushed", "Database file", "Free in the file":
			if tile.Value != "–" || tile.Small != "for administrators" || tile.Spark != "" {
				t.Errorf("%+v", tile)
			}
		case "Stored":
			if tile.Value != "56.1 kB" || tile.Small != "" {
				t.Errorf("%+v", tile)
			}
		}
	}
}

// areaOf returns what a browser sends for a text area that nobody has changed.
func areaOf(t *testing.T, page, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?s)<textarea[^>]* name="` + name + `"[^>]*>(.*?)</textarea>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("there is no text area %s: %s", name, page)
	}
	return strings.ReplaceAll(strings.TrimPrefix(unescaped(m[1]), "\n"), "\n", "\r\n")
}

// TestLabelsKeepWhatAPageCannotShow changes one label beside another one that has a character
// which a page replaces by a mark.
func TestLabelsKeepWhatAPageCannotShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saved := w.save("coder", "one", `{"n": 1}`)
	const value = "by \U0001f469\u200d\U0001f4bb " // the joiner in an emoji, and a blank at the end
	if _, err := w.client.Patch(t.Context(), saved.ID, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"who": value}}); err != nil {
		t.Fatal(err)
	}
	form, page := w.form("ask/label?" + w.formOf(saved, "coder", "one"))
	form.Set("labels", areaOf(t, page, "labels")+"\r\nstage=tested")
	form.Set("reason", "it passed")
	if status, text := w.act("label", form); status != 200 {
		t.Fatalf("answered with %d: %s", status, text)
	}
	cp, err := w.client.Checkpoint(t.Context(), saved.ID, false)
	if err != nil || cp.Labels["who"] != value || cp.Labels["stage"] != "tested" {
		t.Errorf("the labels are %q, %v", cp.Labels, err)
	}
}

// TestPolicyKeepsWhatAPageCannotShow changes a field beside a rule that has such a character.
func TestPolicyKeepsWhatAPageCannotShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	own := ckpt.JSON(`{"ignore_tools":["a` + "\u200d" + `b"]}`)
	if _, err := w.client.SetOwnPolicy(t.Context(), "coder", own); err != nil {
		t.Fatal(err)
	}
	page := w.page("ask/policy?" + url.Values{"owner": {w.owner}, "agent": {"coder"}}.Encode())
	_, after, _ := strings.Cut(page, `name="tag" value="`)
	tag, _, _ := strings.Cut(after, `"`)
	typed := url.Values{"owner": {w.owner}, "agent": {"coder"}, "tag": {unescaped(tag)}, "routine_keep": {"5"}, "rest": {areaOf(t, page, "rest")}}
	if page = w.page("ask/policy?" + typed.Encode()); strings.Contains(page, "ignore_tools") || !strings.Contains(page, "routine_keep: 5") {
		t.Errorf("what nobody has changed is a difference: %s", page)
	}
}
