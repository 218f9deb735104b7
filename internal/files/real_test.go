package files

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWalkListsWhatGitListsWithRealPatterns uses the .gitignore files below the
// folders in CKPT_IGNORES. Each one is put into a repository with files whose
// names are made from its patterns.
func TestWalkListsWhatGitListsWithRealPatterns(t *testing.T) {
	folders := os.Getenv("CKPT_IGNORES")
	if folders == "" {
		t.Skip("CKPT_IGNORES names no folders with .gitignore files")
	}
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	files := 0
	for _, folder := range filepath.SplitList(folders) {
		_ = filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(d.Name(), "gitignore") || !d.Type().IsRegular() {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil || len(text) == 0 || seen[string(text)] {
				return nil
			}
			seen[string(text)] = true
			files += compareWithGit(t, r, path, string(text))
			return nil
		})
	}
	t.Logf("%d different .gitignore files, %d files", len(seen), files)
}

// compareWithGit makes files from the patterns of a .gitignore, lists them both
// ways, and returns the number of files.
func compareWithGit(t *testing.T, r *rand.Rand, name, text string) int {
	t.Helper()
	root := t.TempDir()
	git(t, root, "init", "-q")
	write(t, root, ".gitignore", text)
	var words []string
	for line := range strings.Lines(text) {
		line = strings.Trim(strings.TrimSpace(line), "/!")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, with := range []string{"", "x", "a/b"} {
			word := strings.NewReplacer("**", with, "*", with, "?", "q", "[", "", "]", "", `\`, "").Replace(line)
			if word = strings.Trim(filepath.Clean("/"+word), "/"); word != "" && len(word) < 100 {
				words = append(words, word)
			}
		}
	}
	n := 0
	for i := range words {
		for _, path := range []string{words[i], "sub/" + words[i], words[i] + "/inner", words[i] + ".txt", words[r.IntN(len(words))] + "/" + words[i]} {
			if strings.Contains("/"+path+"/", "/.git/") || skippedByWalk(path) || strings.HasSuffix(path, ".gitignore") {
				continue
			}
			full := filepath.Join(root, filepath.FromSlash(path))
			if os.MkdirAll(filepath.Dir(full), 0o755) != nil {
				continue
			}
			if info, err := os.Stat(full); err == nil && info.IsDir() {
				continue
			}
			if os.WriteFile(full, nil, 0o644) == nil {
				n++
			}
		}
	}
	if d := cmp.Diff(listed(t, root), walked(t, root)); d != "" {
		t.Errorf("%s: git (-) and the walk (+) differ:\n%s", name, d)
	}
	return n
}

// skippedByWalk reports whether a path is in a folder that a walk never enters,
// whatever git says.
func skippedByWalk(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		for _, name := range skipped {
			if part == name {
				return true
			}
		}
	}
	return false
}
