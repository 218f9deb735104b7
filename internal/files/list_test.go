package files

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, root, path, text string) {
	t.Helper()
	full := filepath.Join(root, filepath.FromSlash(path))
	must(t, os.MkdirAll(filepath.Dir(full), 0o755))
	must(t, os.WriteFile(full, []byte(text), 0o644))
}

func git(t testing.TB, folder string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git here")
	}
	cmd := exec.Command("git", args...)
	cmd.Dir = folder
	cmd.Env = append(gitEnvironment(os.Environ(), ""), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_ALLOW_PROTOCOL=file",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// walked lists a folder without using git.
func walked(t testing.TB, root string) []string {
	t.Helper()
	l := newLister(t.Context(), root, Choice{})
	l.walk("", 0, l.outerRules(""))
	if l.out.Failed != nil {
		t.Fatal(l.out.Failed)
	}
	var list []string
	for path := range l.names {
		list = append(list, path)
	}
	slices.Sort(list)
	return list
}

// listed returns the list from git.
func listed(t testing.TB, root string) []string {
	t.Helper()
	out := git(t, root, "ls-files", "-co", "--exclude-standard", "-z")
	list := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	if out == "" {
		list = nil
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestAListingEnds: a folder has more files than a listing may have, or as many in some of its folders.
func TestAListingEnds(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"a/1", "a/2", "b/1", "b/2", "c/1"} {
		write(t, root, path, "")
	}
	for most, failed := range map[int]bool{3: true, 4: true, 5: false} {
		l := newLister(t.Context(), root, Choice{})
		l.most = most
		l.walk("", 0, nil)
		if list := l.done(); len(list.Paths) != most || (list.Failed != nil) != failed {
			t.Errorf("at most %d: %v, %v", most, list.Paths, list.Failed)
		}
	}
}

// ignoreFiles are patterns that people write, and patterns that are hard to
// read.
var ignoreFiles = []string{
	"*.o\n!keep.o\nbuild/\n/dist\n",
	"# comment\n\\#file\n\\!file\n*.log \nspaces\\ \n",
	"**/cache\ncache/**\na/**/b\n**\n!*/\n!*.go\n",
	"foo*/bar\nf?o\n[a-c]x\n[!a]y\n[^b]z\n[[:digit:]]*\n",
	"/a/*\n!/a/b/\n/a/b/*\n!/a/b/c\n",
	"*\n!.gitignore\n!/src/\n!/src/**\n",
	"doc/frotz\ndoc/frotz/\n/doc/*.txt\n",
	"\ufeffbom\nline\r\ncrlf/\r\n",
	"a**b\na**/b\nfoo**\n**foo\n***/x\n",
	"[\n[]\n[]]\n[z-a]\na[\\]]b\nx\\\n[[:foo:]]\n[a-\n",
	"/\n//\n!\n!/\n!!a\n",
	"src/*/*.c\n!src/*/x.c\n*/*/y\n",
	"node\n.env\n*.py[cod]\n*$py.class\n.Python\nlib64/\n!lib/data\n",
	"bin/[Dd]ebug/\n[Bb]in/\n[Oo]bj/\n*.[Cc]ache\n!?*.[Cc]ache/\n",
	"Icon\r\r\n._*\n.DS_Store?\n",
	"a\\*b\n\\[x\\]\na\\b\n*\\?\n",
	"target/\n**/*.rs.bk\n/Cargo.lock\n",
	"x/\n!x/y\nx/y/\n!x/\n",
}

var pathNames = []string{
	"a", "b", "c", "x", "y", "z", "foo", "fooo", "bar", "build", "dist", "cache", "src", "doc", "frotz", "x.c", "a.o", "keep.o", "x.log",
	"#file", "!file", "spaces ", "bom", "line", "crlf", "ax", "by", "cz", "1a", "a*b", "[x]", "ab", "a]b", "main.go", "m.py", "m.pyc", "lib",
	"data", "Debug", "bin", "obj", "q.Cache", "q.txt", ".env", "node", "lib64", "Icon\r", "._q", "*?", "!a", "a-", "q?",
}

func TestWalkListsWhatGitLists(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes many repositories")
	}
	r := rand.New(rand.NewPCG(21, 1))
	for round := range 40 {
		root := t.TempDir()
		git(t, root, "init", "-q")
		text := ignoreFiles[round%len(ignoreFiles)]
		if round >= len(ignoreFiles) {
			text = randomRules(r)
		}
		write(t, root, ".gitignore", text)
		var below []string
		for range 120 {
			path := randomPath(r)
			if os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755) != nil {
				continue // a file already has the name
			}
			if info, err := os.Stat(filepath.Join(root, path)); err == nil && info.IsDir() {
				continue
			}
			must(t, os.WriteFile(filepath.Join(root, path), nil, 0o644))
			if r.IntN(30) == 0 {
				inner := filepath.ToSlash(filepath.Join(filepath.Dir(path), ".gitignore"))
				rules := randomRules(r)
				write(t, root, inner, rules)
				below = append(below, fmt.Sprintf("%s: %q", inner, rules))
			}
		}
		if d := cmp.Diff(listed(t, root), walked(t, root)); d != "" {
			t.Fatalf("round %d, with %q and %q, git (-) and the walk (+) differ:\n%s", round, text, below, d)
		}
	}
}

func randomRules(r *rand.Rand) string {
	var out bytes.Buffer
	for range 1 + r.IntN(8) {
		if r.IntN(3) == 0 {
			lines := strings.Split(ignoreFiles[r.IntN(len(ignoreFiles))], "\n")
			out.WriteString(lines[r.IntN(len(lines))] + "\n")
			continue
		}
		for range r.IntN(3) {
			out.WriteString([]string{"!", "/", "**/", "*", "?", "[a-x]", "\\", " "}[r.IntN(8)])
		}
		name := pathNames[r.IntN(len(pathNames))]
		out.WriteString(name[:1+r.IntN(len(name))])
		for range r.IntN(3) {
			out.WriteString([]string{"/", "*", "**", "/**", "/*", "?", "[!q]", name, "]", "[", "-", " "}[r.IntN(12)])
		}
		out.WriteString("\n")
	}
	return out.String()
}

func randomPath(r *rand.Rand) string {
	parts := make([]string, 1+r.IntN(4))
	for i := range parts {
		parts[i] = pathNames[r.IntN(len(pathNames))]
	}
	return filepath.Join(parts...)
}
