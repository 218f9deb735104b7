package server

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// filesHold is the memory that a call that stores contents holds: for a few incoming
// contents, and for those that wait for their transaction.
const filesHold = 8 * ckpt.MaxTreeFile

func (c *call) missingContents() error {
	var b ipc.ContentsBody
	if err := c.decode(&b); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	answer, err := c.server.store.Files.MissingContents(ctx, c.scope, c.agent, b.SHA256)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, answer)
}

func (c *call) putContents() error {
	if c.r.Header["Content-Encoding"] != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "a body with a Content-Encoding is refused: send it uncompressed, the daemon compresses what it stores")
	}
	if c.r.ContentLength > ckpt.MaxContentsBody {
		return bodyTooLarge(ckpt.MaxContentsBody)
	}
	if err := c.hold(&c.conn.owner.bytes, filesHold); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	limited := http.MaxBytesReader(c.ResponseWriter, c.r.Body, ckpt.MaxContentsBody)
	body := &contentStream{in: bufio.NewReaderSize(c.paced(limited), 64<<10)}
	answer, err := c.server.store.Files.PutContents(ctx, c.scope, c.agent, body.next)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, answer)
}

// contentStream is a body with contents. Each content is a line with its SHA-256, its
// size and the SHA-256 of the previous version or -, followed by its bytes.
type contentStream struct{ in *bufio.Reader }

// contentLine is the maximum length of the first line of a content.
const contentLine = 64 + 1 + 20 + 1 + 64 + 1

// next returns the next content, and io.EOF after the last one.
func (s *contentStream) next() (*ckpt.FileContent, error) {
	line, err := s.line()
	if err != nil {
		return nil, err
	}
	wrong := ckpt.Errorf(ckpt.CodeInvalid,
		"the body is wrong: each content must be a line with its SHA-256, its size "+
			"and the SHA-256 of the previous version (or -), followed by its bytes")
	parts := strings.Split(line, " ")
	if len(parts) != 3 {
		return nil, wrong
	}
	size, err := strconv.ParseUint(parts[1], 10, 63)
	if err != nil || parts[1] != strconv.FormatUint(size, 10) {
		return nil, wrong
	}
	content := &ckpt.FileContent{SHA256: parts[0], Was: parts[2]}
	if content.Was == "-" {
		content.Was = ""
	} else if err := ckpt.CheckSHA256("hash of the version before", content.Was); err != nil {
		return nil, err
	}
	if err := ckpt.CheckSHA256("hash of a content", content.SHA256); err != nil {
		return nil, err
	}
	if size > ckpt.MaxTreeFile {
		return nil, ckpt.Errorf(ckpt.CodeTooLarge, "the content %s has %d bytes: at most %d are allowed", content.SHA256, size, ckpt.MaxTreeFile)
	}
	content.Data = make([]byte, size)
	if _, err := io.ReadFull(s.in, content.Data); err != nil {
		return nil, bodyError(err, ckpt.MaxContentsBody)
	}
	return content, nil
}

func (s *contentStream) line() (string, error) {
	line, err := s.in.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return "", io.EOF
	case errors.Is(err, bufio.ErrBufferFull), err == nil && len(line) > contentLine:
		return "", ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: the first line of a content is too long")
	case err != nil:
		return "", bodyError(err, ckpt.MaxContentsBody)
	}
	return string(line[:len(line)-1]), nil
}

func (c *call) putTree() error {
	body, err := c.readBody(ckpt.MaxTreeBody, 4)
	if err != nil {
		return err
	}
	var r ckpt.TreeRequest
	if err := jsontext.Decode(body, &r); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: %v", err)
	}
	r.Agent = c.agent
	if err := c.hold(&c.conn.owner.heavy, 1); err != nil { // the whole list is in memory
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	answer, err := c.server.store.Files.PutTree(ctx, c.scope, r)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, answer)
}

func (c *call) attachTrees() error {
	r := ckpt.AttachRequest{Checkpoint: c.r.PathValue("id"), IdempotencyKey: c.key}
	if err := c.decode(&r); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	ck, replayed, err := c.server.store.Files.Attach(ctx, c.scope, r)
	if err != nil {
		return err
	}
	c.markReplayed(replayed)
	c.sendCheckpoint(ck, false)
	return nil
}

// filesLimit returns the size of a page of files, 0 for the default.
func (c *call) filesLimit() (int, error) {
	n, err := c.query.number("limit", 1, ckpt.MaxFilesPage)
	if n == nil {
		return 0, err
	}
	return int(*n), nil
}

func (c *call) listFiles() (err error) {
	f := ckpt.FilesFilter{Checkpoint: c.r.PathValue("id"), Tree: c.query.get("tree"), After: c.query.get("after")}
	if f.Limit, err = c.filesLimit(); err != nil {
		return err
	}
	if f.Tree != "" {
		if err := ckpt.CheckSHA256("id of the tree", f.Tree); err != nil {
			return err
		}
	}
	if err := c.hold(&c.conn.owner.heavy, 1); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	page, err := c.server.store.Files.FilesOf(ctx, c.scope, f)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, page)
}

func (c *call) diffFiles() (err error) {
	f := ckpt.FilesDiffFilter{From: c.r.PathValue("a"), To: c.r.PathValue("b"), Root: c.query.get("root"), After: c.query.get("after")}
	if f.Limit, err = c.filesLimit(); err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.heavy, 1); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	d, err := c.server.store.Files.DiffFiles(ctx, c.scope, f)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, d)
}

func (c *call) getContent() error {
	sum := c.r.PathValue("sha256")
	if err := ckpt.CheckSHA256("hash of the content", sum); err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	data, err := c.server.store.Files.Content(ctx, c.scope, c.agent, sum)
	if err != nil {
		return err
	}
	c.Header().Set(ipc.HeaderSHA256, sum)
	c.Header().Set("X-Content-Type-Options", "nosniff")
	c.send(http.StatusOK, []string{ipc.TypeBytes}, data)
	return nil
}

// trees reads the ids of the trees that a save names.
func (c *call) trees() ([]string, error) {
	s, err := c.header(ipc.HeaderTree)
	if err != nil || s == nil {
		return nil, err
	}
	ids := strings.Split(*s, ",")
	for i := range ids {
		ids[i] = strings.TrimSpace(ids[i])
	}
	return ids, ckpt.CheckTrees(ids)
}
