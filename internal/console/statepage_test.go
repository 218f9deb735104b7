package console

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestALargeStatePartByPart opens a state of 20 MB part by part, and compares it with the one before.
func TestALargeStatePartByPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows := make([]string, 200_000)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, strings.Repeat("x", 80))
	}
	state := func(word string) string {
		return `{"a/b":{"word":"` + word + `","same":1,"secret/~":"` + strings.Repeat("long ", 200) + word + `"},"rows":[` + strings.Join(rows, ",") + `],"empty":""}`
	}
	first := w.save("coder", "one", state("old"))
	rows[150_000] = `{"n":-1,"text":"here"}`
	second := w.save("coder", "one", strings.Replace(state("new"), `,"empty":""`, `,"fresh":null`, 1))
	at := func(more ...string) string {
		q := url.Values{"cp": {second.ID}}
		for i := 0; i < len(more); i += 2 {
			q.Set(more[i], more[i+1])
		}
		return unescaped(w.page("o/" + w.owner + "/coder/one/state?" + q.Encode()))
	}
	for i, c := range []struct {
		page string
		has  []string
		not  []string
	}{
		{at(), []string{"list, 2", "compared with checkpoint 1", `<tr class="changed"><td class="mono"><a href`, `<tr class="added"><td class="mono">fresh`, `<tr class="removed"><td class="mono">empty`}, []string{"xxxx"}},
		{at("at", "/a~1b"), []string{`class="mono why">new <span class="chip">changed`, `class="mono why">old</td>`, "<tr><td class=\"mono\">same"}, nil},
		{at("at", "/a~1b", "only", "changed"), []string{"Everything"}, []string{">same<"}},
		{at("at", "/a~1b/secret~1~0"), []string{"long long", "long new"}, []string{"long old"}},
		{at("at", "/rows"), []string{"200 000 elements", "from=200"}, []string{">200<"}},
		{at("at", "/rows", "from", "400"), []string{">400<", "from=600", "from=200"}, []string{">399<"}},
		{at("at", "/rows", "only", "changed"), []string{">150000<"}, []string{">149999<", "Later members"}},
		{at("at", "/rows/150000"), []string{">here <"}, nil},
	} {
		for _, text := range c.has {
			if !strings.Contains(c.page, text) {
				t.Errorf("page %d has no %q: %.3000s", i, text, c.page)
			}
		}
		for _, text := range c.not {
			if strings.Contains(c.page, text) {
				t.Errorf("page %d has %q", i, text)
			}
		}
	}
	if r := w.send("GET", w.base+"o/"+w.owner+"/coder/one/state?cp="+second.ID+"&at=/none", nil, nil); r.StatusCode != 404 {
		t.Errorf("a place that is not there is answered with %s", r.Status)
	}
	if page := w.page("o/" + w.owner + "/coder/one?cp=" + first.ID); !strings.Contains(page, "/state?against="+second.ID+"&amp;cp="+first.ID) {
		t.Errorf("the checkpoint has no View: %s", page)
	}
}

// TestARecorderIsReadOnce: whoever steps through the checkpoints of a run gets the same recorder, until something changes.
func TestARecorderIsReadOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.save("coder", "one", `{"n": 1}`)
	w.save("coder", "one", `{"n": 2}`)
	at := "o/" + w.owner + "/coder/one?cp=" + first.ID
	w.console.daemon.forget() // the overview from before the run
	w.page(at)
	kept := len(w.console.daemon.recorders)
	w.page(at + "&against=")
	if now := len(w.console.daemon.recorders); kept != 1 || now != 1 {
		t.Errorf("%d recorders were kept, then %d", kept, now)
	}
	w.save("coder", "one", `{"n": 3}`)
	w.console.daemon.forget()
	if page := w.page(at); !strings.Contains(page, "3 checkpoints") {
		t.Errorf("the page is from before the save: %s", page)
	}
}
