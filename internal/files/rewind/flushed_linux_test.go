package rewind

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestStagedFilesAreFlushed watches the system calls of a restore. Each staged file is made with O_EXCL, so that the restore writes
// nothing that another program has put there, and is flushed before the file takes its place. So are the journal before the first
// staged file is made, and the folders before the journal goes.
func TestStagedFilesAreFlushed(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	root, dir := filepath.Join(t.TempDir(), "root"), t.TempDir()
	must(t, os.Mkdir(root, 0o755))
	was, is := world{"a": "1", "d/b": "1", "d/e/c": "1", "l": "-> a"}, world{"a": "2", "d/b": "2"}
	is.make(t, root)
	k := &task{Root: root, Journal: filepath.Join(dir, "journal"), Plan: Make(wishOf(was, is), open(t, root), Options{}), Contents: map[string][]byte{}}
	was.contents(k.Contents)
	text, err := json.Marshal(k)
	must(t, err)
	file, trace := filepath.Join(dir, "task"), filepath.Join(dir, "trace")
	must(t, os.WriteFile(file, text, 0o600))
	cmd := exec.Command(strace, "-f", "-qq", "-y", "-s", "300", "-o", trace, "-e", "trace=openat,open,fsync,fdatasync,rename,renameat,renameat2,unlinkat,unlink", os.Args[0])
	cmd.Env = append(os.Environ(), childOf+"="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines, err := os.ReadFile(trace)
	must(t, err)
	made, placed, journal := map[string]bool{}, 0, 0
	flushed := map[string]bool{}
	name := regexp.MustCompile(`\.ckpt-0badcafe-[0-9]+`)
	for line := range strings.Lines(string(lines)) {
		staged := name.FindString(line)
		switch {
		case strings.Contains(line, "fsync(") || strings.Contains(line, "fdatasync("):
			at := line[strings.IndexByte(line, '<')+1:]
			flushed[filepath.Base(at[:strings.IndexByte(at, '>')])] = true
		case strings.Contains(line, "open") && staged != "" && strings.Contains(line, "O_CREAT"):
			if made[staged] = true; !strings.Contains(line, "O_EXCL") {
				t.Errorf("made without O_EXCL: %s", line)
			}
			if journal == 0 {
				t.Errorf("made before the journal was written: %s", line)
			}
		case strings.Contains(line, "rename") && strings.Contains(line, "journal"):
			journal++
		case strings.Contains(line, "rename") && staged != "":
			if placed++; made[staged] && !flushed[staged] {
				t.Errorf("placed without a flush: %s", line)
			}
			clear(flushed)
			for staged := range made {
				flushed[staged] = true // they were all flushed before the first took its place
			}
		case strings.Contains(line, "unlink") && strings.Contains(line, `journal"`):
			for _, folder := range []string{"root", "d", "e"} {
				if !flushed[folder] {
					t.Errorf("the folder %s is not flushed when the journal goes", folder)
				}
			}
		}
	}
	if len(made) != 3 || placed != 4 || journal < 2 {
		t.Errorf("%d files were made, %d placed, and the journal was written %d times", len(made), placed, journal)
	}
}
