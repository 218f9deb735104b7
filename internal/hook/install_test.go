package hook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

const others = `{
  "model": "opus",
  "permissions": {
    "allow": [
      "Bash(ls:*)"
    ],
    "n": 12345678901234567890
  },
  "hooks": {
    "PreToolUse": [
      {
        "matcher": "Bash",
        "hooks": [
          {
            "type": "command",
            "command": "check <x> && y"
          }
        ]
      }
    ],
    "Notification": []
  },
  "z": null
}
`

func TestInstallKeepsWhatIsThere(t *testing.T) {
	for _, p := range hook.Products {
		once, err := hook.Install(p, []byte(others), "ckptsidecar hook --for "+string(p), 0)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := hook.Install(p, once, "/usr/bin/ckptsidecar hook --for "+string(p), 0)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.ReplaceAll(string(once), "ckptsidecar hook", "/usr/bin/ckptsidecar hook"), string(twice)); diff != "" {
			t.Errorf("%s, once and twice: %s", p, diff)
		}
		back, err := hook.Uninstall(twice)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(others, string(back)); diff != "" {
			t.Errorf("%s, before and after: %s", p, diff)
		}
		var settings struct {
			Hooks map[string][]struct {
				Matcher string
				Hooks   []struct {
					Type, Command string
					Timeout       int
				}
			}
		}
		if err := json.Unmarshal(once, &settings); err != nil {
			t.Fatal(err)
		}
		inputs := recorded(t, p)
		for _, in := range inputs {
			groups := settings.Hooks[in.Event]
			if len(groups) == 0 {
				t.Errorf("%s: nothing is installed for %s", p, in.Event)
				continue
			}
			g := groups[len(groups)-1]
			if h := g.Hooks[0]; h.Type != "command" || h.Command != "ckptsidecar hook --for "+string(p) || h.Timeout == 0 || (g.Matcher != "") != (in.Tool != "") {
				t.Errorf("%s: for %s is installed %+v", p, in.Event, g)
			}
		}
	}
}

func TestInstallIntoNothing(t *testing.T) {
	for _, empty := range []string{"", "{}", "\ufeff{}\n", "{\"hooks\":{}}"} {
		installed, err := hook.Install(hook.ClaudeCode, []byte(empty), "ckptsidecar hook --for claude-code", 0)
		if err != nil || strings.Count(string(installed), "ckptsidecar hook") != 10 {
			t.Errorf("%q becomes %s, error %v", empty, installed, err)
		}
		if back, err := hook.Uninstall(installed); err != nil || strings.TrimSpace(string(back)) != "{}" {
			t.Errorf("%q becomes %s again, error %v", empty, back, err)
		}
	}
}

func TestUninstallTakesOursAlone(t *testing.T) {
	const mixed = `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"say ckptsidecar hooks are good"},{"type":"command","command":"\"C:/Program Files/ckptsidecar/ckptsidecar.exe\" hook --for claude-code"}]}]}}`
	left, err := hook.Uninstall([]byte(mixed))
	if err != nil || strings.Contains(string(left), ".exe") || !strings.Contains(string(left), "say ckptsidecar hooks are good") {
		t.Errorf("left is %s, error %v", left, err)
	}
}

// TestUninstallFindsOursWhateverTheProgramIsCalled: a renamed binary, a developer's build, a wrapper.
func TestUninstallFindsOursWhateverTheProgramIsCalled(t *testing.T) {
	for _, program := range []string{"ckpt", "/opt/ckptsidecar-1.2.3", "'/home/kim/my tools/recorder'", `"C:/Tools/ckptsidecar-windows-amd64.exe"`, "/tmp/go-build1/b001/exe/main"} {
		for _, p := range hook.Products {
			installed, err := hook.Install(p, []byte(others), program+" hook --for "+string(p)+" --agent a --socket /s", 0)
			if err != nil {
				t.Fatal(err)
			}
			if left, err := hook.Uninstall(installed); err != nil || string(left) != others {
				t.Errorf("%s for %s: left is %s, error %v", program, p, left, err)
			}
			again, err := hook.Install(p, installed, "ckptsidecar hook --for "+string(p), 0)
			if err != nil || strings.Contains(string(again), program+" hook") {
				t.Errorf("%s for %s is not replaced: %s, error %v", program, p, again, err)
			}
		}
	}
}

func TestSettingsThatCannotBeEditedAreRefused(t *testing.T) {
	for settings, want := range map[string]string{
		"{ // mine\n}":                  "not plain JSON",
		"[]":                            "not a JSON object",
		`{"hooks":[]}`:                  "hooks in these settings is not a JSON object",
		`{"hooks":{"PreToolUse":"x"}}`:  "hooks.PreToolUse in these settings is not a JSON array",
		`{"hooks":{},"hooks":{"a":[]}}`: "duplicate key",
	} {
		if got, err := hook.Install(hook.ClaudeCode, []byte(settings), "ckptsidecar hook", 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s becomes %s, error %v", settings, got, err)
		}
	}
}

// TestOtherMembersOfHooksStay: some versions of Gemini CLI have switches beside the events.
func TestOtherMembersOfHooksStay(t *testing.T) {
	const switches = "{\n  \"hooks\": {\n    \"enabled\": true,\n    \"disabled\": [\n      \"x\"\n    ]\n  }\n}\n"
	installed, err := hook.Install(hook.Gemini, []byte(switches), "ckptsidecar hook --for gemini", 0)
	if err != nil || !strings.Contains(string(installed), `"enabled": true`) {
		t.Fatalf("%s, error %v", installed, err)
	}
	if back, err := hook.Uninstall(installed); err != nil || string(back) != switches {
		t.Errorf("it becomes %s again, error %v", back, err)
	}
}

// TestTheProductWaitsForTheHook: it would end a hook that may take longer, which then recorded nothing.
func TestTheProductWaitsForTheHook(t *testing.T) {
	for p, want := range map[hook.Product]string{hook.ClaudeCode: `"timeout": 38`, hook.Codex: `"timeout": 38`, hook.Gemini: `"timeout": 38000`} {
		installed, err := hook.Install(p, nil, "ckptsidecar hook", 35*time.Second)
		if err != nil || !strings.Contains(string(installed), want) {
			t.Errorf("%s: %s, error %v", p, installed, err)
		}
	}
}
