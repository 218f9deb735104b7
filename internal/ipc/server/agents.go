package server

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

func (c *call) listAgents() error {
	limit, err := c.query.limit()
	if err != nil {
		return err
	}
	states, err := c.query.is("states", false)
	if err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	page, err := c.server.store.Agents.Agents(ctx, c.scope, ckpt.AgentFilter{Before: c.query.get("before"), Limit: limit, States: states})
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, page)
}

func (c *call) eraseAgent() error {
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	erased, err := c.server.store.Agents.Erase(ctx, c.scope, c.agent)
	if err != nil {
		return err
	}
	erased.Fleet = c.server.fleet.Erased()
	return c.sendJSON(http.StatusOK, erased)
}

func (c *call) chownAgents() error {
	var r ckpt.ChownRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	done, replayed, err := c.server.store.Agents.Chown(ctx, c.scope, r, c.key)
	if err != nil {
		return err
	}
	c.markReplayed(replayed)
	return c.sendJSON(http.StatusOK, done)
}

func (c *call) getPolicy() error {
	layers, err := c.query.is("layers", false)
	if err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	tag, err := c.server.store.Policies.PolicyTag(ctx, c.scope, c.agent) // before the policy: a policy that is set in between has another tag
	if err != nil {
		return err
	}
	c.Header()["Etag"] = []string{strconv.Quote(tag)}
	if layers {
		p, err := c.server.store.Policies.PolicyLayers(ctx, c.scope, c.agent)
		if err != nil {
			return err
		}
		return c.sendJSON(http.StatusOK, p)
	}
	p, err := c.server.store.Policies.Policy(ctx, c.scope, c.agent)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, p)
}

func (c *call) putPolicy() error {
	body, err := c.readBody(maxSmallBody, 2)
	if err != nil {
		return err
	}
	if _, err := wellformed.ParsePolicy(body); err != nil {
		return err
	}
	match, err := c.tags("If-Match")
	if err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	set, err := c.server.store.Policies.SetOwnPolicy(ctx, c.scope, c.agent, body, match...)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, set)
}

func (c *call) getOwnerPolicy() error {
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	p, err := c.server.store.Policies.PolicyLayers(ctx, c.scope, ckpt.AllAgents)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, p)
}

func (c *call) putOwnerPolicy() error {
	body, err := c.readBody(maxSmallBody, 2)
	if err != nil {
		return err
	}
	if _, err := wellformed.ParsePolicy(body); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	set, err := c.server.store.Policies.SetOwnerPolicy(ctx, c.scope, body)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, set)
}

func (c *call) exportAgent() error {
	return c.export(ckpt.ExportRequest{Agents: []string{c.agent}, Run: c.query.get("run")})
}

func (c *call) exportAgents() error {
	var r ckpt.ExportRequest
	if list := c.query.get("agents"); list != "" {
		r.Agents = strings.Split(list, ",")
	}
	if c.scope.Target == ckpt.AllOwners {
		return ckpt.Errorf(ckpt.CodeInvalid, "name one owner: an export has the agents of one owner")
	}
	return c.export(r)
}

func (c *call) export(r ckpt.ExportRequest) error {
	if err := r.Check(); err != nil {
		return err
	}
	files, err := c.query.is("files", true)
	if err != nil {
		return err
	}
	r.NoFiles = !files
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.LongTimeout)
	defer cancel()
	return c.server.store.Agents.ExportAgents(ctx, c.scope, r, stream{c, ipc.TypeSQLite})
}

func (c *call) importAgent() error {
	r := ckpt.ImportRequest{Agent: c.query.get("agent")}
	if r.Agent != "" {
		if err := ckpt.CheckAgentName(r.Agent); err != nil {
			return err
		}
	}
	if c.scope.Target == ckpt.AllOwners {
		return ckpt.Errorf(ckpt.CodeInvalid, "name one owner: an agent has only one")
	}
	limit := c.server.limits.MaxImport
	if c.r.ContentLength > limit {
		return bodyTooLarge(limit)
	}
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	body := &importBody{call: c, body: c.paced(http.MaxBytesReader(c.ResponseWriter, c.r.Body, limit)), limit: limit}
	report, err := c.server.store.Agents.Import(ctx, c.scope, r, body)
	if body.err != nil { // the error that ended the body is the reason why the import failed
		return body.err
	}
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, report)
}

// importBody is the body of an import. It remembers the error that ended the body, so that the
// store needs to know nothing about HTTP. If the body is lines of text, the store reads one line at a time into memory,
// so the body takes the memory for its longest line. A database file is never in memory.
type importBody struct {
	call  *call
	body  io.Reader
	limit int64
	line  int64 // bytes of the current line so far
	held  int64 // bytes of the longest line, in the owner's share
	begun bool
	file  bool // it is a database file
	err   error
}

// linePart is how much memory is taken at once for a long line. Shorter lines take none.
const linePart = 1 << 20

// Read reads from the body and remembers its error.
func (b *importBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && err != io.EOF {
		b.err = bodyError(err, b.limit)
		return n, b.err
	}
	if n > 0 && !b.begun {
		b.begun, b.file = true, p[0] != '{'
	}
	if b.file {
		return n, err
	}
	end, _, ends := bytes.Cut(p[:n], []byte("\n"))
	b.line += int64(len(end))
	if b.err = b.hold(); b.err != nil {
		return 0, b.err
	}
	if ends {
		b.line = int64(n - 1 - bytes.LastIndexByte(p[:n], '\n'))
	}
	return n, err
}

// hold takes the memory for the current line, if there is memory without waiting.
func (b *importBody) hold() error {
	if most := b.call.server.limits.InFlightBytes / 2; b.line > most {
		return ckpt.Errorf(ckpt.CodeTooLarge, "a line of the import is longer than the %d bytes that are allowed", most)
	}
	for share := &b.call.conn.owner.bytes; b.line-b.held >= linePart; b.held += linePart {
		if !share.tryAcquire(linePart) {
			return share.busy()
		}
		b.call.keep(share, linePart)
	}
	return nil
}

func (c *call) prune() error {
	var r ckpt.PruneRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Agent != "" {
		if err := ckpt.CheckAgentName(r.Agent); err != nil {
			return err
		}
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	report, replayed, err := c.server.store.Checkpoints.Prune(ctx, c.scope, r, c.key)
	if err != nil {
		return err
	}
	c.markReplayed(replayed)
	return c.sendJSON(http.StatusOK, report)
}
