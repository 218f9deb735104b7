package drift

import (
	"strconv"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func TestCommandsAreToldApart(t *testing.T) {
	for line, want := range map[string]string{
		"ls -la":                "ls",
		"cd /repo && make test": "make test",
		"FOO=1 sudo -E /usr/bin/grep -rn x . | head":   "grep",
		"python3 -m pytest tests/a.py":                 "python3 pytest",
		"python3 fix.py --all":                         "python3",
		"git -C a status":                              "git status",
		"git checkout -- a.go; go test ./...":          "git checkout go test",
		"timeout 60 pytest -q":                         "pytest",
		"cat <<'EOF' > x.py\nimport os\nrm -rf /\nEOF": "cat",
		"cat <<EOF > x.sh\nls\nEOF\nbash x.sh 2>&1":    "bash",
		"echo 'a && b' # ; rm x":                       "echo",
		"npm run build":                                "npm run",
		"go test ./... > out.txt 2>err.txt":            "go test",
		"bash -c \"make test\"":                        "bash",
		"":                                             "",
	} {
		if got := shapeOf(splitCommands(line)); got != want {
			t.Errorf("%q is %q, not %q", line, got, want)
		}
	}
}

func TestShapes(t *testing.T) {
	shape := func(tool, args string) string { return callOf(tool, ckpt.JSON(args)).shape }
	if shape("bash", `{"command":"make a"}`) != shape("exec", `{"command":["sh","-lc","cd x; make a"]}`) || shape("bash", `"make a"`) != shape("bash", `{"cmd":"make a"}`) {
		t.Error("one command has several shapes")
	}
	if shape("bash", `{"command":"make a"}`) == shape("bash", `{"command":"grep a b"}`) {
		t.Error("two commands have one shape")
	}
	if shape("read", `{"path":"a","limit":1}`) != shape("read", `{"limit":7,"path":"b"}`) || shape("read", `{"path":"a"}`) == shape("read", `{"path":"a","limit":1}`) {
		t.Error("the names of the arguments do not make the shape")
	}
}

func FuzzSplitCommands(f *testing.F) {
	for _, s := range []string{"a && b | c", "cat <<E\nx\nE\nls", "'\"\\", "<<", "a\\\n b", "2>&1 >x", "$(a `b` (c))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		commands := splitCommands(line)
		for _, c := range commands {
			if len(c) == 0 || len(c) > maxCommandArgs {
				t.Errorf("%q: %q", line, c)
			}
		}
		shapeOf(commands)
		effectOfCommands(commands)
	})
}

func TestEffects(t *testing.T) {
	effect := func(args string) string { return callOf("bash", ckpt.JSON(args)).effect }
	same := [][2]string{
		{`{"command":"git checkout -- a.go"}`, `{"command":"cd . && git checkout a.go && make"}`},
		{`{"command":"git restore b.go a.go"}`, `{"command":"git checkout HEAD -- a.go b.go"}`},
		{`{"command":"git reset --hard"}`, `{"command":"git reset --hard HEAD"}`},
		{`{"file_path":"a.go","content":"package a"}`, `{"content":"package a","file_path":"a.go","n":1}`},
	}
	for _, pair := range same {
		if a, b := effect(pair[0]), effect(pair[1]); a == "" || a != b {
			t.Errorf("%s: %q, %q", pair, a, b)
		}
	}
	for _, none := range []string{`{"command":"git checkout main"}`, `{"command":"git checkout -b fix.it"}`, `{"command":"git restore --staged a.go"}`, `{"command":"git status"}`,
		`{"command":"git stash"}`, `{"path":"a.go"}`, `{"path":"a.go","content":"x"}`, `{"path":"a.go","content":"[redacted]"}`, `"git checkout a.go"`[:1] + `git log a.go"`} {
		if got := effect(none); got != "" {
			t.Errorf("%s has the effect %s", none, got)
		}
	}
	if effect(`{"path":"a.go","content":"package a"}`) == effect(`{"path":"b.go","content":"package a"}`) {
		t.Error("two files are one")
	}
}

func TestChurn(t *testing.T) {
	m := newMade(t, detector(RuleChurn, ckpt.Detector{Tier: ckpt.TierWarn}))
	write := func(text string) {
		m.step("write", map[string]any{"path": "a.go", "content": text}, "ok "+strconv.Itoa(len(m.prints)), "")
	}
	for range 3 {
		write(strings.Repeat("a", 20))
		write(strings.Repeat("b", 30))
	}
	m.expect(RuleChurn, ckpt.SeverityWarn, 4)
	m = newMade(t)
	for i := range 40 {
		write(strings.Repeat("a", 10+i))
	}
	m.expectNone()
}

// TestAGaugeTellsCommandsApart: for a tool that runs commands, each command is
// a separate tool.
func TestAGaugeTellsCommandsApart(t *testing.T) {
	m := newMade(t)
	took := func(ms int64) func(*ckpt.Step) { return func(s *ckpt.Step) { s.DurationMS = &ms } }
	for i := range 30 {
		m.step("exec", map[string]any{"command": "grep x " + strconv.Itoa(i)}, i, "", took(50+int64(i%5)))
	}
	for i := range 10 {
		m.step("exec", map[string]any{"command": "make t" + strconv.Itoa(i)}, i, "", took(60_000+int64(i)))
	}
	m.expectNone()
	for i := range 10 {
		m.step("exec", map[string]any{"command": "grep y " + strconv.Itoa(i)}, i, "", took(500))
	}
	if m.first(RuleLatencyDrift, ckpt.SeverityInfo) < 40 {
		t.Error("a slower grep was not found: " + m.all())
	}
}
