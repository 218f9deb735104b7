//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// aBlock is a block of code in a document: the file in which the reader must save it, its language and its text.
var aBlock = regexp.MustCompile("(?ms)(?:^Save this as `([^`\n]+)`[^\n]*\n\n)?^ *```([a-z]*)\n(.*?)^ *```$")

// notRun lists the blocks that no test checks, by the words they begin with, and the reasons.
var notRun = []struct{ page, begins, why string }{
	{"docs/OPERATIONS_ONCE.md", "open ── succeed", "a picture of the states"},
	{"docs/OPERATIONS_ONCE.md", "Nobody knows whether", "the words of the refusal, which the tests of the clients compare"},
	{"docs/OPERATIONS_ONCE.md", "repair {'receipt'", "what the block above it prints, which the Python client's tests run"},
	{"docs/OPERATIONS_ONCE.md", "the mail server did not", "what the block above it prints, which the Python client's tests run"},
	{"README.md", "go run ./cmd/ckptsidecar serve", "it runs these tests"},
	{"docs/ADAPTERS.md", "$ python3 clients/conformance", "it needs a program; make clients-adapters plays it"},
	{"docs/ARCHITECTURE.md", "flowchart", "it is a picture"},
	{"docs/AUDIT.md", "22 rows, head", "an output with hashes of its own"},
	{"docs/AUDIT.md", "sound  ckpt.db", "an output with hashes of its own"},
	{"docs/AUDIT.md", "audit_chain row 21", "the output of a damaged database"},
	{"docs/AUDIT.md", "journalctl", "it reads the journal of the service; TestStories/damage compares with a log"},
	{"docs/CONSOLE.md", "ckptsidecar console  ", "it opens a browser; TestStories/console follows its link"},
	{"docs/CONSOLE.md", "ckptsidecar serve", "it takes a minute; TestStories/demo_data makes the data"},
	{"docs/CONSOLE.md", "ssh ", "it needs another machine"},
	{"docs/FILES.md", "ckptsidecar hook install", "it asks; TestStories/rewind plays it"},
	{"docs/FLEET.md", "   # on the primary", "it sets PostgreSQL up on two machines"},
	{"docs/FLEET.md", "ckptsidecar fleet check", "it needs PostgreSQL; make fleet runs it"},
	{"docs/FLEET.md", "apt-get install postgresql", "it needs PostgreSQL; make fleet runs it"},
	{"docs/FLEET.md", "ckptsidecar fleet keys add", "it writes into /etc; TestFleetSealed uses such keys"},
	{"docs/FLEET.md", "ckptsidecar exec --agent coder --standby", "it needs PostgreSQL; examples/fleet/standby.sh does the same"},
	{"docs/FLEET.md", "ckptsidecar fleet claim --host", "it needs PostgreSQL; TestClaimAll and TestForget do the same"},
	{"docs/FLEET.md", "GRANT SELECT", "it needs PostgreSQL"},
	{"docs/HOOKS.md", "ckptsidecar hook install", "it asks; TestStories/hook plays it, and docs/QUICKSTART.md with --yes"},
	{"docs/HOWTO.md", "ckptsidecar agents --owner", "it needs a second user; TestStories/chown plays it"},
	{"docs/HOWTO.md", "ckptsidecar export --all", "it installs a service; make e2e-systemd does"},
	{"docs/LANGGRAPH.md", "pip install", "it needs PyPI"},
	{"docs/CONTAINERS.md", "spec:", "it needs Kubernetes"},
	{"docs/OPERATIONS.md", "scrape_configs", "it needs Prometheus"},
	{"docs/OPERATIONS.md", "#!/bin/sh\n# /etc/ckptsidecar/after-backup", "it needs rclone; TestAfterABackup runs such a program"},
	{"docs/OPERATIONS.md", "ls -l /var/lib", "it needs a service; TestStories/restore_backup plays it"},
	{"docs/QUICKSTART.md", "go install", "it starts the daemon that the page has here"},
	{"docs/QUICKSTART.md", "(cd clients/typescript", "it needs npm; make clients-typescript installs the package"},
	{"docs/QUICKSTART.md", "node loop.mjs", "it needs the package of the block before; make clients-typescript types it"},
	{"docs/QUICKSTART.md", "claude mcp add", "it needs Claude Code; make clients-mcp speaks to the server"},
	{"docs/RELEASE.md", "   gh release", "it publishes"},
	{"docs/RESUME.md", "ckptsidecar prompts", "ID stands for the id of a prompt; TestStories/prompts answers one"},
	{"docs/SPOOL.md", "spool/", "it lists the files of a folder"},
	{"docs/TYPESCRIPT.md", "(cd clients/typescript", "it needs npm; make clients-typescript installs the package"},
	{"examples/sessions/README.md", "(cd ../../clients", "it needs npm; make clients-sessions plays it"},
	{"examples/typescript/README.md", "(cd ../../clients", "it needs npm; make clients-typescript kills it"},
}

// checkedBy names the tests that run the blocks of a page in a language, or that compare them with code that runs.
var checkedBy = map[[2]string][]string{
	{"README.md", "go"}:                    {"client/example_test.go"},
	{"README.md", "python"}:                {"clients/python/tests/test_docs.py"},
	{"README.md", "ts"}:                    {"clients/typescript/test/docs.test.ts"},
	{"clients/python/README.md", "python"}: {"clients/python/tests/test_docs.py"},
	{"clients/typescript/README.md", "ts"}: {"clients/typescript/test/docs.test.ts"},
	{"docs/ADAPTERS.md", "go"}:             {"internal/adaptertest/docs.go"},
	{"docs/ADAPTERS.md", "ts"}:             {"clients/typescript/adapters/test/docs.test.ts"},
	{"docs/COMING_FROM.md", "python"}:      {"clients/python/tests/test_docs.py"},
	{"docs/COMING_FROM.md", "text"}:        {"clients/python/tests/test_docs.py"},
	{"docs/COMING_FROM.md", "ts"}:          {"clients/typescript/test/docs.test.ts"},
	{"docs/CONTAINERS.md", "sh"}:           {"packaging/container_test.go"},
	{"docs/GO.md", "go"}:                   {"client/example_test.go"},
	{"docs/HOOKS.md", ""}:                  {"internal/hook/docs_test.go"},
	{"docs/LANGGRAPH.md", "python"}:        {"clients/python/tests/test_langgraph.py"},
	{"docs/LANGGRAPH.md", "ts"}:            {"clients/typescript/test/docs.test.ts"},
	{"docs/PYTHON.md", "python"}:           {"clients/python/tests/test_docs.py"},
	{"docs/PYTHON.md", "text"}:             {"clients/python/tests/test_docs.py"},
	{"docs/QUICKSTART.md", "go"}:           {"client/example_test.go"},
	{"docs/QUICKSTART.md", "python"}:       {"clients/python/tests/test_docs.py"},
	{"docs/QUICKSTART.md", "ts"}:           {"clients/typescript/test/docs.test.ts"},
	{"docs/TYPESCRIPT.md", "ts"}:           {"clients/typescript/test/docs.test.ts"},
}

// prepared is what a reader of a page has done before reading it.
var prepared = map[string]string{
	"docs/AUDIT.md": `echo '{"step":1}' | ckptsidecar save coder
		echo '{"step":2}' | ckptsidecar save coder
		ln -s ~/.local/state/ckptsidecar/ckpt.db ckpt.db`,
	"docs/DRIFT.md": `echo '{"step":1}' | ckptsidecar save fixer --run nightly-7
		S=$HOME/.local/state/ckptsidecar/ckptsidecar.sock
		curl -sf --unix-socket $S http://x/v1/agents/fixer/runs/nightly-7/steps -H 'Content-Type: application/json' -d '{
		"gen_ai.tool.call.id": "call_1", "gen_ai.tool.name": "search", "status": "succeeded"}'
		echo '{"detectors": {"repeat": {"warn": 4}}}' > policy.json
		echo '{"id":"1","source":"fixer","outcome":"passed","steps":[{"tool":"search"}]}' | gzip > runs.jsonl.gz`,
	"docs/EXPORT.md": `echo '{"step":1}' | ckptsidecar save coder
		echo '{"step":1}' | ckptsidecar save coder --run nightly`,
	"docs/OPERATIONS.md": `mkdir -p ~/node_exporter`,
}

// killed are the blocks of docs/QUICKSTART.md that kill an agent in the middle and run it again: the agent, its
// run, and the output that its two lives together print once.
var killed = []struct{ begins, agent, run, once string }{
	{"python3 loop.py", "loop", "main", "0 squared is 0\n|sum: 285\n"},
	{"go build -o worker", "crawler", "nightly", "going on at page [1-9]|published: 10045 words\n"},
}

// here replaces the paths of the service with those of the reader.
var here = strings.NewReplacer(
	"/run/ckptsidecar/ckptsidecar.sock", "~/.local/state/ckptsidecar/ckptsidecar.sock",
	"/var/lib/node_exporter", "~/node_exporter",
	"/var/lib/ckptsidecar/audit", "~/audit",
)

// TestTheDocumentsRun runs each block of each page in order, or checks it in another way. A block that cannot be
// checked here is listed in a table above.
func TestTheDocumentsRun(t *testing.T) {
	expect.OneThread(t)
	root := filepath.Join("..", "..")
	var pages []string
	for _, folder := range []string{"", "docs", "docs/*", "clients/*", "examples/*", "adapters/*", "packaging/*"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	var blocks, run, checked, left atomic.Int32
	t.Run("pages", func(t *testing.T) {
		for _, path := range pages {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found := aBlock.FindAllStringSubmatch(string(text), -1)
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), "```"); n != 2*len(found) {
				t.Errorf("%s has %d lines that begin or end a block, and %d blocks", name, n, len(found))
			}
			if len(found) == 0 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				blocks.Add(int32(len(found)))
				p := page{name: filepath.ToSlash(name)}
				for _, m := range found {
					if m[1] != "" {
						file := filepath.Join(p.open(t).dir, m[1])
						if err := os.WriteFile(file, []byte(m[3]), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					switch p.block(t, m[2], m[3]) {
					case wasRun:
						run.Add(1)
					case wasChecked:
						checked.Add(1)
					case wasLeft:
						left.Add(1)
					}
				}
				for _, entry := range notRun {
					if entry.page == p.name && !slices.Contains(p.left, entry.begins) {
						t.Errorf("no block of %s begins with %q", p.name, entry.begins)
					}
				}
			})
		}
	})
	t.Logf("%d blocks: %d run, %d checked otherwise, %d not run", blocks.Load(), run.Load(), checked.Load(), left.Load())
	if all := run.Load() + checked.Load() + left.Load(); all != blocks.Load() {
		t.Errorf("%d of %d blocks were looked at", all, blocks.Load())
	}
}

type fate int

const (
	wasRun fate = iota
	wasChecked
	wasLeft
)

// page is a document that is read from its first block to its last.
type page struct {
	name   string
	reader *reader
	query  string   // the last query that the page showed
	left   []string // the entries of notRun that occurred on this page
}

var (
	aQuery   = regexp.MustCompile(`"(SELECT [^"]*)"`)
	aCommand = regexp.MustCompile(`(?m)^\$ ckptsidecar ((?:[a-z]+ )*)(.*)$`)
	aFlag    = regexp.MustCompile(`--[a-z-]+`)
	aSetting = regexp.MustCompile(`^(#.*|\[[A-Za-z]+\]|[A-Z][A-Za-z]+=.*|)$`)
)

// block runs or checks one block.
func (p *page) block(t *testing.T, language, text string) fate {
	for _, entry := range notRun {
		if entry.page == p.name && strings.HasPrefix(text, entry.begins) {
			p.left = append(p.left, entry.begins)
			return wasLeft
		}
	}
	if tests := checkedBy[[2]string{p.name, language}]; tests != nil {
		for _, test := range tests {
			source, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(test)))
			if err != nil || !strings.Contains(string(source), filepath.Base(p.name)) {
				t.Errorf("%s does not check %s: %v", test, p.name, err)
			}
		}
		return wasChecked
	}
	switch language {
	case "sh":
		if m := aQuery.FindStringSubmatch(text); m != nil {
			p.query = m[1]
		}
		if p.name == "docs/RELIABILITY.md" {
			// A target that takes hours must only exist.
			makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text) {
				if !strings.Contains(string(makefile), "\n"+strings.Fields(line)[1]+": ") {
					t.Errorf("the Makefile does not know %s", line)
				}
			}
			return wasChecked
		}
		for _, k := range killed {
			if p.name == "docs/QUICKSTART.md" && strings.HasPrefix(text, k.begins) {
				return p.open(t).kill(t, text, k.agent, k.run, k.once)
			}
		}
		p.open(t).try(t, here.Replace(text))
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "export ") {
				p.reader.exports += line
			}
		}
		return wasRun
	case "sql":
		p.query = strings.TrimSuffix(strings.TrimSpace(text), ";")
		p.open(t).check(t, "sqlite3 -readonly -bail ~/.local/state/ckptsidecar/ckpt.db <<'END'\n"+text+"END\n")
		return wasRun
	case "":
		// The first line of a table below a query names the columns of that query.
		lines := strings.Split(text, "\n")
		if !strings.HasPrefix(text, "┌") || p.query == "" {
			break
		}
		columns := strings.Join(strings.FieldsFunc(lines[1], func(r rune) bool { return r == '│' || r == ' ' }), ",")
		p.open(t).check(t, "columns=$(sqlite3 -readonly ~/.local/state/ckptsidecar/ckpt.db <<'END'\n"+
			"CREATE TEMP VIEW v AS "+p.query+
			";\nSELECT group_concat(name) FROM pragma_table_info('v');\nEND\n)\necho $columns; [ $columns = "+columns+" ]\n")
		return wasChecked
	case "json", "text":
		for d := json.NewDecoder(strings.NewReader(text)); ; {
			var v any
			if err := d.Decode(&v); err == io.EOF {
				return wasChecked
			} else if err != nil {
				t.Errorf("%v\n%s", err, text)
				return wasChecked
			}
		}
	case "toml":
		if p.name == "docs/MCP.md" { // these are the settings of another program
			var v any
			if _, err := toml.Decode(text, &v); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
			return wasChecked
		}
		p.open(t).check(t, "cat > settings.toml <<'END'\n"+text+"END\nckptsidecar config check settings.toml\n")
		return wasChecked
	case "ini":
		for line := range strings.Lines(text) {
			if !aSetting.MatchString(strings.TrimSpace(line)) {
				t.Errorf("this is not a line of a unit: %s", line)
			}
		}
		return wasChecked
	case "python", "py":
		if p.name == "docs/AUDIT.md" {
			p.open(t).try(t, "python3 - ckpt.db <<'END'\n"+text+"END\n")
			return wasRun
		}
		// The flag allows a block to use await at top level.
		const compile = `python3 -c 'import sys; compile(sys.stdin.read(), "block", "exec", 0x2000)'`
		p.open(t).check(t, compile+" <<'END'\n"+text+"END\n")
		return wasChecked
	case "ts":
		p.open(t).check(t, "cat > block.mjs <<'END'\n"+text+"END\nnode --check block.mjs\n")
		return wasChecked
	case "console":
		// A command in a transcript uses only flags that the command knows.
		for _, m := range aCommand.FindAllStringSubmatch(text, -1) {
			said := p.open(t).check(t, "ckptsidecar "+m[1]+"--help\nckptsidecar help flags\n")
			for _, flag := range aFlag.FindAllString(m[2], -1) {
				if !strings.Contains(said, flag) {
					t.Errorf("ckptsidecar %shas no flag %s", m[1], flag)
				}
			}
		}
		return wasChecked
	}
	t.Errorf("nothing checks this block, and no table says why (%q):\n%s", language, text)
	return wasLeft
}

// open returns the reader of the page, who has a separate daemon.
func (p *page) open(t *testing.T) *reader {
	if p.reader == nil {
		p.reader = newReader(t)
		if p.name == "docs/QUICKSTART.md" {
			p.reader.clone(t)
		}
		if before := prepared[p.name]; before != "" {
			p.reader.try(t, before)
		}
	}
	return p.reader
}

// reader is a person who types what a page says.
type reader struct {
	dir     string
	env     []string
	exports string // what the previous blocks have exported
	without string // a tool that an earlier block needed and that is missing
	client  *client.Client
}

func newReader(t *testing.T) *reader {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	for _, folder := range []string{bin, filepath.Join(dir, "home", ".local", "state"), filepath.Join(dir, "work")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// testscript gives this binary the name of the command in a folder of PATH.
	command, err := exec.LookPath("ckptsidecar")
	if err != nil {
		command = self
	}
	if err := os.Symlink(command, filepath.Join(bin, "ckptsidecar")); err != nil {
		t.Fatal(err)
	}
	r := &reader{dir: filepath.Join(dir, "work")}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "CKPTSIDECAR_") && !strings.HasPrefix(name, "XDG_") {
			r.env = append(r.env, v)
		}
	}
	home := filepath.Join(dir, "home")
	r.env = append(r.env, "HOME="+home, "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1", "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	daemon := exec.Command(filepath.Join(bin, "ckptsidecar"), "serve")
	daemon.Env, daemon.Dir = r.env, r.dir
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		<-ended
	})
	r.client = &client.Client{Socket: filepath.Join(home, ".local", "state", "ckptsidecar", "ckptsidecar.sock")}
	t.Cleanup(r.client.Close)
	for r.client.Ready(t.Context()) != nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the daemon ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return r
}

// clone copies everything that a clone of the repository contains into the reader's folder.
func (r *reader) clone(t *testing.T) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		from, to := filepath.Join(root, entry.Name()), filepath.Join(r.dir, entry.Name())
		switch {
		case strings.HasPrefix(entry.Name(), "."):
		case entry.IsDir():
			err = errors.Join(err, os.Symlink(from, to))
		default: // Go does not embed links
			text, failed := os.ReadFile(from)
			err = errors.Join(err, failed, os.WriteFile(to, text, 0o600))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kill runs a block that kills an agent in the middle and runs it again. It replaces the command sleep with one
// that waits until the agent has saved something.
func (r *reader) kill(t *testing.T, block, agent, run, once string) fate {
	t.Helper()
	waits := "#!/bin/sh\nfor i in $(seq 1000); do ckptsidecar show " + agent + " >/dev/null 2>&1 && exit; done\n"
	bin := filepath.Join(filepath.Dir(r.dir), "bin", "sleep")
	if err := os.WriteFile(bin, []byte(waits), 0o700); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(bin) }()
	said := r.try(t, block)
	if said == "" {
		return wasRun // a tool is not installed, which is logged
	}
	for pattern := range strings.SplitSeq(once, "|") {
		if n := len(regexp.MustCompile(pattern).FindAllString(said, -1)); n != 1 {
			t.Errorf("%q is said %d times", pattern, n)
		}
	}
	info, err := r.client.Run(t.Context(), ckpt.RunRef{Agent: agent, Run: run})
	if err != nil || info.Attempt != 2 || info.Status != ckpt.RunCompleted {
		t.Errorf("the run is %+v, error %v", info, err)
	}
	return wasRun
}

// try runs a block as the reader's next one. If a tool is missing, neither it nor a later block of the page is run,
// because a later block may need what it does.
func (r *reader) try(t *testing.T, block string) string {
	t.Helper()
	if tool := missing(block); tool != "" {
		r.without = tool
	}
	if r.without != "" {
		t.Logf("not run, because %s is not installed:\n%s", r.without, block)
		return ""
	}
	return r.shell(t, block)
}

// check runs a block that changes nothing for later ones.
func (r *reader) check(t *testing.T, block string) string {
	t.Helper()
	if tool := missing(block); tool != "" {
		t.Logf("not run, because %s is not installed:\n%s", tool, block)
		return ""
	}
	return r.shell(t, block)
}

// missing returns a tool that a block uses and that is not installed.
func missing(block string) string {
	for _, tool := range []string{"curl", "gzip", "jq", "node", "python3", "sha256sum", "sqlite3"} {
		if _, err := exec.LookPath(tool); err != nil && regexp.MustCompile(`\b`+tool+" ").MatchString(block) {
			return tool
		}
	}
	return ""
}

// shell types a block into a shell that stops at the first failing command, and returns the output.
func (r *reader) shell(t *testing.T, block string) string {
	t.Helper()
	shell := exec.Command("sh", "-eu")
	shell.Env, shell.Dir, shell.Stdin = r.env, r.dir, strings.NewReader(r.exports+block)
	said, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, block, said)
	} else {
		t.Logf("%s\n%s", block, said)
	}
	return string(said)
}
