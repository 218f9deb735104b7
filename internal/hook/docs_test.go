package hook_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

func TestTheDocumentSaysWhatIsInstalledAndWhatIsRisky(t *testing.T) {
	text, err := os.ReadFile("../../docs/HOOKS.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.ReplaceAll(string(text), "\r\n", "\n")
	for _, p := range hook.Products {
		settings, err := hook.Install(p, nil, "ckptsidecar hook --for "+string(p), 0)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(doc, "```json\n"+string(settings)+"```") {
			t.Errorf("docs/HOOKS.md does not show what is installed for %s:\n%s", p, settings)
		}
		inputs := recorded(t, p)
		for _, in := range inputs {
			if !strings.Contains(doc, "`"+in.Event+"`") {
				t.Errorf("docs/HOOKS.md does not say what happens at %s", in.Event)
			}
		}
	}
	if !strings.Contains(doc, "```\n"+strings.Join(hook.DefaultRisky, "\n")+"\n```") {
		t.Error("docs/HOOKS.md does not list what is risky as the program does")
	}
}
