package db_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// BenchmarkTreesOfCommits stores the last 100 commits of a git repository as trees of checkpoints, and reports the
// space that they take. The environment names the repository:
//
//	BENCH_REPO=/path/to/.git go test ./internal/db -run none -bench TreesOfCommits -benchtime 1x
func BenchmarkTreesOfCommits(b *testing.B) {
	repo := os.Getenv("BENCH_REPO")
	if repo == "" {
		b.Skip("BENCH_REPO names no git repository")
	}
	commits := strings.Fields(gitOf(b, repo, "log", "--first-parent", "-n", "100", "--format=%H"))
	slices.Reverse(commits)
	blobs := openBlobs(b, repo)
	for b.Loop() {
		s, _ := open(b)
		p := ckpt.DefaultPolicy()
		p.RoutineKeep = 1000
		save(b, s, ann, "coder", ckpt.KindRoutine, `0`)
		if _, err := s.SetPolicy(b.Context(), ann, "coder", p); err != nil {
			b.Fatal(err)
		}
		base := ckpt.Tree{}
		sums, raw := map[string]string{}, int64(0)
		var first, slowest time.Duration
		for i, commit := range commits {
			now := ckpt.Tree{Root: "/home/ann/langgraph", Complete: true}
			was := map[string]string{}
			for _, e := range base.Entries {
				was[e.Path] = e.SHA256
			}
			var fresh []*ckpt.FileContent
			for line := range strings.SplitSeq(strings.TrimRight(gitOf(b, repo, "ls-tree", "-r", "-z", commit), "\x00"), "\x00") {
				head, path, _ := strings.Cut(line, "\t")
				fields := strings.Fields(head)
				if fields[0] != "100644" && fields[0] != "100755" {
					continue
				}
				data, known := []byte(nil), sums[fields[2]]
				if known == "" {
					if data = blobs.read(b, fields[2]); data == nil || len(data) > ckpt.MaxTreeFile {
						continue
					}
					known = hashOf(string(data))
					sums[fields[2]] = known + " " + strconv.Itoa(len(data))
					raw += int64(len(data))
					fresh = append(fresh, &ckpt.FileContent{SHA256: known, Was: was[path], Data: data})
				}
				sum, size, _ := strings.Cut(sums[fields[2]], " ")
				n, _ := strconv.ParseInt(size, 10, 64)
				now.Entries = append(now.Entries, ckpt.TreeEntry{Path: path, Mode: "0" + fields[0][3:], Size: n, SHA256: sum})
			}
			tree.Sort(&now)
			began := time.Now()
			at := 0
			_, err := s.PutContents(b.Context(), ann, "coder", func() (*ckpt.FileContent, error) {
				if at == len(fresh) {
					return nil, io.EOF
				}
				at++
				return fresh[at-1], nil
			})
			if err != nil {
				b.Fatal(err)
			}
			r := ckpt.TreeRequest{Agent: "coder", Base: base.ID, Root: now.Root, Complete: true}
			r.Set, r.Removed = tree.Change(base.Entries, now.Entries)
			stored, err := s.PutTree(b.Context(), ann, r)
			if err != nil {
				b.Fatal(err)
			}
			now.ID = stored.ID
			base = now
			saveWith(b, s, ann, "coder", fmt.Sprint(i), stored.ID)
			took := time.Since(began)
			if i == 0 {
				first = took
			} else {
				slowest = max(slowest, took)
			}
		}
		if err := s.Upkeep(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(base.Entries)), "files")
		b.ReportMetric(float64(raw)/1e6, "raw-MB")
		b.ReportMetric(first.Seconds()*1000, "first-ms")
		b.ReportMetric(slowest.Seconds()*1000, "slowest-ms")
		info, err := os.Stat(s.Opt.Path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/1e6, "file-MB")
		b.Logf("contents %s bytes, rows of lists %s, whole lists %s", scan(b, s.Opt.Path, `SELECT sum(length(data)) FROM contents`),
			scan(b, s.Opt.Path, `SELECT count(*) FROM tree_files`), scan(b, s.Opt.Path, `SELECT count(*) FROM trees WHERE base IS NULL`))
	}
}

// BenchmarkFirstTree stores 2,000 files of 17 kB and their tree, and then a change of three of them.
func BenchmarkFirstTree(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	f := folder{}
	for i := range 2000 {
		var text strings.Builder
		for text.Len() < 17_000 {
			fmt.Fprintf(&text, "func f%d(a int, b string) error { return g%d(a+%d, b) }\n", r.IntN(1e6), r.IntN(1e4), r.IntN(1e3))
		}
		f[fmt.Sprintf("src/pkg%02d/file%04d.go", i%40, i)] = text.String()
	}
	for b.Loop() {
		s, _ := open(b)
		began := time.Now()
		id := putFiles(b, s, ann, "coder", "", nil, f)
		saveWith(b, s, ann, "coder", `1`, id)
		b.ReportMetric(time.Since(began).Seconds()*1000, "first-ms")
		next := maps.Clone(f)
		for i := range 3 {
			path := fmt.Sprintf("src/pkg%02d/file%04d.go", i, i)
			next[path] = next[path][:5000] + "// edited\n" + next[path][5000:]
		}
		began = time.Now()
		saveWith(b, s, ann, "coder", `2`, putFiles(b, s, ann, "coder", id, f, next))
		b.ReportMetric(time.Since(began).Seconds()*1000, "change-ms")
	}
}

func gitOf(t testing.TB, repo string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir", filepath.Clean(repo)}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// blobsOf reads blobs of a repository through one git process.
type blobsOf struct {
	in  io.Writer
	out *bufio.Reader
}

func openBlobs(t testing.TB, repo string) *blobsOf {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "--git-dir", repo, "cat-file", "--batch")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &blobsOf{in, bufio.NewReader(out)}
}

// read returns a blob, or nil if the repository does not have it.
func (b *blobsOf) read(t testing.TB, id string) []byte {
	t.Helper()
	fmt.Fprintln(b.in, id)
	head, err := b.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(head)
	if len(fields) < 3 {
		return nil
	}
	size, _ := strconv.Atoi(fields[2])
	var data bytes.Buffer
	if _, err := io.CopyN(&data, b.out, int64(size)+1); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()[:size]
}
