package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// TestLimitsOfFiles reaches each limit of the calls that store files, exceeds it by one, and checks the error
// message.
func TestLimitsOfFiles(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	w := newFilesWorld(t)
	socket := filepath.Join(w.dir, "s")
	http1 := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer http1.CloseIdleConnections()
	const ok = ""
	// call returns the code and the message of the error, or "" if there is none.
	call := func(path, contentType string, body []byte) string {
		t.Helper()
		answer, err := http1.Post("http://ckptsidecar"+path, contentType, bytes.NewReader(body))
		must(t, err)
		defer answer.Body.Close()
		if answer.StatusCode < 300 {
			return ok
		}
		var problem struct{ Code, Detail string }
		must(t, json.NewDecoder(answer.Body).Decode(&problem))
		return problem.Code + ": " + problem.Detail
	}
	check := func(what, got string, want ...string) {
		t.Helper()
		for _, part := range want {
			if !strings.Contains(got, part) || part == ok && got != ok {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
	}
	asJSON := func(value any) []byte {
		text, err := json.Marshal(value)
		must(t, err)
		return text
	}
	contents := func(list ...[]byte) (body []byte) {
		for _, data := range list {
			body = client.AppendContent(body, &ckpt.FileContent{SHA256: sumOf(data), Data: data})
		}
		return body
	}
	const agent, kind = "/v1/agents/a", "application/vnd.ckptsidecar.contents"

	asked := func(n int) []byte {
		sums := make([]string, n)
		for i := range sums {
			sums[i] = fmt.Sprintf("%064x", i)
		}
		return asJSON(map[string]any{"sha256": sums})
	}
	check("10,000 hashes", call(agent+"/contents/missing", "application/json", asked(ckpt.MaxContentsAsked)), ok)
	check("10,001 hashes", call(agent+"/contents/missing", "application/json", asked(ckpt.MaxContentsAsked+1)), "too_large", "10001 contents", "at most 10000")

	large := make([]byte, ckpt.MaxTreeFile)
	check("a file of 4 MiB", call(agent+"/contents", kind, contents(large)), ok)
	check("a larger one", call(agent+"/contents", kind, contents(make([]byte, ckpt.MaxTreeFile+1))), "too_large", "4194305 bytes", "at most 4194304")
	var many []byte
	for i := byte(1); len(many)+2*len(large) < ckpt.MaxContentsBody; i++ {
		data := bytes.Clone(large)
		data[0] = i
		many = append(many, contents(data)...)
	}
	fill := func(size int) []byte { // the rest of a body of this size, in two contents
		rest := size - len(many) - 2*len(contents(large)) + 2*len(large)
		return append(bytes.Clone(many), contents(make([]byte, rest/2), make([]byte, rest-rest/2))...)
	}
	body := fill(ckpt.MaxContentsBody)
	if len(body) != ckpt.MaxContentsBody {
		t.Fatalf("the body has %d bytes", len(body))
	}
	check("contents of 64 MiB", call(agent+"/contents", kind, body), ok)
	check("one byte more", call(agent+"/contents", kind, fill(ckpt.MaxContentsBody+1)), "too_large", "67108864")

	one := []byte("x")
	check("a small file", call(agent+"/contents", kind, contents(one)), ok)
	plant := func(change func(*ckpt.TreeRequest)) string {
		r := ckpt.TreeRequest{Root: "/project", Complete: true}
		change(&r)
		return call(agent+"/trees", "application/json", asJSON(r))
	}
	entries := func(n int, data []byte) func(*ckpt.TreeRequest) {
		return func(r *ckpt.TreeRequest) {
			for i := range n {
				r.Set = append(r.Set, ckpt.TreeEntry{Path: fmt.Sprintf("f%d", i), Mode: "0644", Size: int64(len(data)), SHA256: sumOf(data)})
			}
		}
	}
	check("20,000 files", plant(entries(ckpt.MaxTreeFiles, one)), ok)
	check("20,001 files", plant(entries(ckpt.MaxTreeFiles+1, one)), "too_large", "20001 files", "at most 20000")
	check("256 MiB", plant(entries(64, large)), ok)
	check("256 MiB and a byte", plant(func(r *ckpt.TreeRequest) {
		entries(64, large)(r)
		r.Set = append(r.Set, ckpt.TreeEntry{Path: "more", Mode: "0644", Size: 1, SHA256: sumOf(one)})
	}), "too_large", "more than 268435456 bytes")
	path := func(n int) func(*ckpt.TreeRequest) {
		return func(r *ckpt.TreeRequest) {
			r.Set = []ckpt.TreeEntry{{Path: strings.Repeat("p", n), Mode: "0644", Size: 1, SHA256: sumOf(one)}}
		}
	}
	check("a path of 4 KiB", plant(path(ckpt.MaxTreePath)), ok)
	check("a longer one", plant(path(ckpt.MaxTreePath+1)), "invalid", "4097 bytes long: at most 4096")
	link := func(n int) func(*ckpt.TreeRequest) {
		return func(r *ckpt.TreeRequest) {
			r.Set = []ckpt.TreeEntry{{Path: "l", Mode: ckpt.LinkMode, Size: int64(n), Target: strings.Repeat("t", n)}}
		}
	}
	check("a link to 4 KiB", plant(link(ckpt.MaxTreeTarget)), ok)
	check("a longer one", plant(link(ckpt.MaxTreeTarget+1)), "invalid", `the link "l" needs a target of 1 to 4096 bytes`)
	leftOut := func(n int) func(*ckpt.TreeRequest) {
		return func(r *ckpt.TreeRequest) {
			for i := range n {
				r.LeftOut = append(r.LeftOut, ckpt.LeftOut{Path: fmt.Sprintf("f%05d", i), Why: ckpt.LeftOutSpecial})
			}
		}
	}
	check("10,000 left out", plant(leftOut(ckpt.MaxTreeLeftOut)), ok)
	check("10,001 left out", plant(leftOut(ckpt.MaxTreeLeftOut+1)), "too_large", "10001 paths", "at most 10000")
	padded := asJSON(ckpt.TreeRequest{Root: "/project", Complete: true})
	padded = append(padded, bytes.Repeat([]byte(" "), ckpt.MaxTreeBody-len(padded))...)
	check("a tree in 8 MiB", call(agent+"/trees", "application/json", padded), ok)
	check("a byte more", call(agent+"/trees", "application/json", append(padded, ' ')), "too_large", "8388608")

	var trees []string
	for i := range ckpt.MaxTrees + 1 {
		stored, err := w.client.PutTree(t.Context(), ckpt.TreeRequest{Agent: "a", Root: fmt.Sprintf("/project%d", i), Complete: true})
		must(t, err)
		trees = append(trees, stored.ID)
	}
	save := func(n int) error {
		_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte("{}"), Trees: trees[:n]})
		return err
	}
	must(t, save(ckpt.MaxTrees))
	if err := save(ckpt.MaxTrees + 1); ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), "9 trees are named: a checkpoint has at most 8") {
		t.Errorf("9 trees: %v", err)
	}
}

// TestATreeThatIsLargerThanACall: the list of a tree that does not fit into one call is sent in parts. It can be
// restored, and so can a tree in which a file has replaced a folder.
func TestATreeThatIsLargerThanACall(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	w := newFilesWorld(t)
	root, err := os.OpenRoot(w.root)
	must(t, err)
	defer root.Close()
	folder := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 200)+"/", 15), "/")
	must(t, root.MkdirAll(folder, 0o755))
	const files = 3000 // each takes more than 3,000 bytes in the list
	for i := range files {
		must(t, root.WriteFile(fmt.Sprintf("%s/f%d", folder, i), []byte("x"), 0o644))
	}
	must(t, root.WriteFile("z", []byte("1"), 0o644))
	w.do("policy", "set", "*", "routine_keep=0")
	snap := func() string {
		t.Helper()
		return strings.Fields(w.do("files", "snap", w.root, "--agent", "a"))[0]
	}
	count := func(checkpoint string) int {
		t.Helper()
		page, err := w.client.Files(t.Context(), ckpt.FilesFilter{Checkpoint: checkpoint, Limit: 1})
		must(t, err)
		return page.Trees[0].Files
	}
	first := snap()
	if n := count(first); n != files+1 {
		t.Fatalf("the first tree has %d files", n)
	}
	must(t, os.RemoveAll(filepath.Join(w.root, strings.Repeat("d", 200))))
	must(t, root.WriteFile(strings.Repeat("d", 200), []byte("a file"), 0o644))
	second := snap() // removes more than fits into one call
	if n := count(second); n != 2 {
		t.Errorf("the second tree has %d files", n)
	}
	w.do("files", "restore", first, "--yes", "--remove")
	for _, i := range []int{0, files - 1} {
		if text, err := root.ReadFile(fmt.Sprintf("%s/f%d", folder, i)); err != nil || string(text) != "x" {
			t.Errorf("file %d is %q, %v", i, text, err)
		}
	}
}

// TestPatternsOfTheEnvironment: the environment adds patterns to those of the flags, and the status counts the
// files that were left out.
func TestPatternsOfTheEnvironment(t *testing.T) {
	t.Parallel()
	w := newFilesWorld(t)
	w.env = append(w.env, "CKPTSIDECAR_FILES_INCLUDE=/out/kept\n\n", "CKPTSIDECAR_FILES_EXCLUDE=*.tmp\r\nbig/")
	w.put(map[string]string{
		".gitignore": "out/\n", "a": "1", "b.tmp": "2", "big/c": "3", "d.log": "4", "out/kept": "5", "out/other": "6", ".env": "7", "x.pem": "8",
	})
	id := strings.Fields(w.do("files", "snap", w.root, "--agent", "a", "--exclude", "*.log"))[0]
	page, err := w.client.Files(t.Context(), ckpt.FilesFilter{Checkpoint: id})
	must(t, err)
	var got []string
	for _, e := range page.Files {
		got = append(got, e.Path)
	}
	if want := ".gitignore a out/kept"; strings.Join(got, " ") != want {
		t.Errorf("the tree has %q, not %s", got, want)
	}
	list := w.do("files", "list", id)
	for _, line := range []string{"left out: .env (secret_name)", "left out: x.pem (secret_name)"} {
		if !strings.Contains(list, line) {
			t.Errorf("no %q in %s", line, list)
		}
	}
	w.put(map[string]string{"a": "1", "x.pem": "8"})
	w.do("files", "snap", w.root, "--agent", "a")
	if status := w.do("status"); !strings.Contains(status, "of files (1 path left out: ckptsidecar files list AGENT)") {
		t.Errorf("the status says %s", status)
	}
}
