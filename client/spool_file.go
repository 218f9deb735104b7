package client

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

const (
	spoolVersion = 1
	spoolSuffix  = ".ckpt"
	rejectedDir  = "rejected"
	headMost     = 1 << 20
	staleTemp    = time.Hour
)

// errNewer means that a later version of the client wrote the file. The file is left
// alone.
var errNewer = errors.New("a newer version of the client wrote it")

// unreadable reports whether the system could not read a file now. Nothing is known about
// the file then: it is not damaged.
func unreadable(err error) bool {
	var system *fs.PathError
	return errors.As(err, &system) && !errors.Is(err, fs.ErrPermission)
}

// readFile reads a file of the spool and checks it.
func readFile(path string) (*spooled, []byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	head, err := readHead(in)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(body)
	if int64(len(body)) != head.Size || hex.EncodeToString(sum[:]) != head.SHA256 {
		return nil, nil, errors.New("the body differs from the one that was written: its size or hash is wrong")
	}
	return head, body, nil
}

// readHeadOf reads and checks only the first line of a file of the spool. With an error, it returns what
// the line says if it has the right form.
func readHeadOf(path string) (*spooled, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readHead(bufio.NewReader(f))
}

func openFile(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is a link, a folder or a device, not a file that a client wrote")
	}
	return os.Open(path)
}

func readHead(in *bufio.Reader) (*spooled, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil || len(line) > headMost {
			break
		}
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the first line is not whole")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	if len(line) > headMost {
		return nil, errors.New("the first line is longer than 1 MiB")
	}
	var head spooled
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("the first line is not the JSON that it should be: %w", err)
	}
	if head.Version > spoolVersion {
		return &head, errNewer
	}
	return &head, head.check()
}

// check refuses every request that clients do not spool.
func (h *spooled) check() error {
	if err := (ckpt.RunRef{Agent: h.Agent, Run: h.Run}).Check(); err != nil {
		return err
	}
	rest, ours := strings.CutPrefix(h.Path, "/v1/agents/"+h.Agent+"/")
	id, isSave := strings.CutPrefix(rest, "checkpoints/")
	inRun, isRun := strings.CutPrefix(rest, "runs/"+h.Run+"/")
	first, more, _ := strings.Cut(inRun, "/")
	switch {
	case !ours:
	case h.Method == "PUT" && isSave && ckpt.CheckID(id) == nil:
		return nil
	case h.Method != "POST" || !isRun || h.Headers["Idempotency-Key"] == "":
	case first == "events" || first == "end" || first == "steps" || first == "operations":
		if !strings.HasSuffix(more, "/resolve") {
			return nil
		}
	}
	return fmt.Errorf("requests of this kind are never spooled: %s %s", h.Method, h.Path)
}

// header returns a header of the request, or "".
func (h *spooled) header(name string) string {
	for key, value := range h.Headers {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// owner returns whose agent the request is about, "" for the agents of the user who sends it.
func (h *spooled) owner() string {
	query, _ := url.ParseQuery(h.Query)
	return query.Get("owner")
}

// reject moves a file aside, together with the reason.
func reject(dir, name string, why *ckpt.Error) error {
	aside := filepath.Join(dir, rejectedDir)
	if err := openFolder(aside); err != nil {
		return err
	}
	note, err := json.Marshal(struct {
		Code   ckpt.Code `json:"code"`
		Detail string    `json:"detail"`
		At     ckpt.Time `json:"at"`
	}{why.Code, why.Message, ckpt.At(time.Now())})
	if err != nil {
		return err
	}
	if err := osfile.Write(filepath.Join(aside, strings.TrimSuffix(name, spoolSuffix)+".json"), append(note, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, name), filepath.Join(aside, name))
}

// sweepTemps removes the temporary files of writers that died.
func sweepTemps(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && strings.HasSuffix(entry.Name(), ".tmp") && time.Since(info.ModTime()) > staleTemp {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// spooled is the first line of a file in the spool. docs/SPOOL.md has its form.
type spooled struct {
	Version   int               `json:"version"`
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Query     string            `json:"query"`
	Headers   map[string]string `json:"headers"`
	Agent     string            `json:"agent"`
	Run       string            `json:"run"`
	Endpoint  string            `json:"endpoint"`
	CreatedAt ckpt.Time         `json:"created_at"`
	Size      int64             `json:"size"`
	SHA256    string            `json:"sha256"`
	Client    string            `json:"client"`
}
