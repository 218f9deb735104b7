package server

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// call is one request on its way through the server. It is the ResponseWriter that
// handlers see, so that finish knows what has been written.
type call struct {
	http.ResponseWriter
	r      *http.Request
	server *Server
	conn   *conn
	began  time.Time

	route *route
	scope ckpt.Scope
	query query
	agent string // {agent} in the path, checked
	key   string // the Idempotency-Key, checked

	loneSlash bool // {key} in the path is "/"

	holds  [4]hold // places in shares, released at the end
	held   int
	status int   // 0 until something was written
	body   int64 // bytes of the request's body
	err    error
}

// WriteHeader records that the reply has begun.
func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the reply.
func (c *call) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

var loneSlashes = strings.NewReplacer("/%2F/", "/%252F/", "/%2f/", "/%252F/")

// hideLoneSlash allows a part of the path that is only an escaped slash, because a key
// can be that. The mux of net/http would take it for the end of the path.
func (c *call) hideLoneSlash() {
	path := loneSlashes.Replace(c.r.URL.RawPath)
	if path == c.r.URL.RawPath {
		return
	}
	u := *c.r.URL
	u.RawPath = path
	u.Path, _ = url.PathUnescape(path) // it was escaped correctly before
	c.r = c.r.WithContext(c.r.Context())
	c.r.URL, c.loneSlash = &u, true
}

// pathKey returns {key} in the path, which the store checks.
func (c *call) pathKey() string {
	if c.loneSlash {
		return "/"
	}
	return c.r.PathValue("key")
}

// admit refuses requests that no route should get.
func (c *call) admit() error {
	if c.conn.refused != nil {
		c.Header().Set("Connection", "close")
		return c.conn.refused
	}
	if c.r.Header["Origin"] != nil || c.r.Header["Referer"] != nil {
		return c.refuse(ckpt.Errorf(ckpt.CodeDenied, "requests from web pages (with Origin or Referer) are refused"))
	}
	// net/http would redirect a path that is not clean. All paths of the API are clean.
	if p := c.r.URL.EscapedPath(); p == "" || p[0] != '/' || path.Clean(p) != p {
		return noSuchPath()
	}
	return nil
}

// run does the checks that all calls have in common, and then runs the call.
func (c *call) run(rt *route) error {
	c.route = rt
	for _, step := range [...]func(*call) error{(*call).checkPath, (*call).readScope, (*call).readSpooled, (*call).readKey,
		(*call).takeWrite, (*call).takeShare} {
		if err := step(c); err != nil {
			return err
		}
	}
	return rt.do(c)
}

// checkPath checks the names in the path before anything else.
func (c *call) checkPath() error {
	if c.agent = c.r.PathValue("agent"); c.agent != "" {
		if err := ckpt.CheckAgentName(c.agent); err != nil {
			return err
		}
	}
	if run := c.r.PathValue("run"); run != "" {
		if err := ckpt.CheckLife(run); err != nil {
			return err
		}
	}
	if token := c.r.PathValue("token"); token != "" {
		if err := ckpt.CheckTokenID(token); err != nil {
			return err
		}
	}
	for _, name := range [...]string{"id", "a", "b"} {
		if id := c.r.PathValue(name); id != "" {
			if err := ckpt.CheckID(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// readScope reads the query and, from the query, whose agents the call is about.
func (c *call) readScope() error {
	var err error
	if c.query, err = readQuery(c.r.URL.RawQuery, c.route.params); err != nil {
		return err
	}
	name := c.query.get(ipc.OwnerParameter)
	if c.scope, err = c.conn.caller.For(name); err != nil {
		c.scope.Caller = c.conn.caller
		return c.refuse(err)
	}
	if slices.Contains(c.route.params, reasonParameter) {
		c.scope.Reason = c.query.get(reasonParameter)
		if err := ckpt.CheckReason(c.scope.Reason); err != nil {
			return err
		}
	}
	if name == "" {
		return nil
	}
	return c.checkOwner(name)
}

// reasonParameter is the reason for an action, for calls whose body has no member for it.
const reasonParameter = "reason"

// checkOwner refuses a misspelled owner, which would become a new one. It also refuses
// AllOwners in a call about one agent.
func (c *call) checkOwner(name string) error {
	if name == ckpt.AllOwners {
		if c.agent != "" {
			return ckpt.Errorf(ckpt.CodeInvalid, "name one owner: an agent has only one")
		}
		return nil
	}
	if !ckpt.IsOwner(name) {
		return ckpt.Errorf(ckpt.CodeInvalid, "the owner %q is neither uid:NUMBER nor a SID", shown(name))
	}
	return nil
}

// readSpooled reads when a client spooled the write.
func (c *call) readSpooled() error {
	s, err := c.header(ipc.HeaderSpooled)
	if err != nil || s == nil {
		return err
	}
	if c.scope.Spooled, err = ckpt.ParseTime(*s); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the header %s is not a time: write it as 2026-03-01T12:00:00.000Z", ipc.HeaderSpooled)
	}
	return nil
}

// readKey reads the idempotency key of a POST.
func (c *call) readKey() error {
	if c.r.Method != http.MethodPost {
		return nil
	}
	key, err := c.header("Idempotency-Key")
	if err != nil || key == nil {
		return err
	}
	c.key = *key
	return ckpt.CheckKey("Idempotency-Key", c.key)
}

// header returns the value of a header that can occur at most once, or nil if it is
// absent.
func (c *call) header(name string) (*string, error) {
	switch values := c.r.Header[name]; len(values) {
	case 0:
		return nil, nil
	case 1:
		return &values[0], nil
	}
	return nil, ckpt.Errorf(ckpt.CodeInvalid, "the header %s was sent twice", name)
}

// takeWrite limits the rate of an owner's writes. It never refuses a heartbeat, because
// the daemon would then consider the run dead.
func (c *call) takeWrite() error {
	if !c.route.write {
		return nil
	}
	wait := c.conn.owner.writes.take()
	if wait == 0 || c.route.urgent {
		return nil
	}
	return &ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: max(wait, time.Second),
		Message: "you send more writes a second than are allowed: try again later, or write less often"}
}

func (c *call) takeShare() error {
	if c.route.free {
		return nil
	}
	return c.hold(&c.conn.owner.requests, 1)
}

// hold waits for n places of a share and keeps them until the call is done.
func (c *call) hold(l *share, n int64) error {
	if err := l.acquire(c.r.Context(), n, c.server.limits.Wait); err != nil {
		return err
	}
	c.keep(l, n)
	return nil
}

// keep records places that were taken. If a call already holds places in the same share,
// it adds to them.
func (c *call) keep(l *share, n int64) {
	for i := range c.holds[:c.held] {
		if c.holds[i].share == l {
			c.holds[i].n += n
			return
		}
	}
	c.holds[c.held] = hold{l, n}
	c.held++
}

// giveBack releases the places in a share before the call is done.
func (c *call) giveBack(l *share) {
	for i := range c.holds[:c.held] {
		if c.holds[i].share == l {
			l.release(c.holds[i].n)
			c.holds[i].n = 0
		}
	}
}

// refuse records a refusal that no other method of the store sees.
func (c *call) refuse(err error) error {
	if c.conn.owner.refusals.take() > 0 {
		return err
	}
	e := ckpt.AsError(err)
	action := "request"
	if c.route != nil {
		action = c.route.name
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), c.server.limits.WriteTimeout)
	defer cancel()
	c.server.store.Audit.Refused(ctx, c.scope, ckpt.Refusal{Action: action, Agent: c.agent, Code: e.Code, Reason: e.Message})
	return err
}

// writing returns the context of a write. It does not end when the client hangs up. It
// ends when the server has waited long enough.
func (c *call) writing(most time.Duration) (context.Context, context.CancelFunc) {
	ctx := ckpt.WithAsking(context.WithoutCancel(c.r.Context()), func() (context.Context, context.CancelFunc) {
		asking, cancel := c.reading(most)
		unhook := context.AfterFunc(c.server.stopping, cancel)
		return asking, func() { unhook(); cancel() }
	})
	return context.WithTimeout(ctx, most)
}

// halfClosed is how long a read continues after its client has stopped sending. A client
// that has closed only its sending half looks the same, and still listens.
const halfClosed = time.Second

// reading returns the context of a read.
func (c *call) reading(most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), most)
	unhook := context.AfterFunc(c.r.Context(), func() { time.AfterFunc(halfClosed, cancel) })
	return ctx, func() { unhook(); cancel() }
}

// route is one call of the API.
type route struct {
	name   string // for logs, metrics and refusals in the audit log
	method string
	path   string
	params []string // query parameters besides owner
	write  bool     // it continues when its client hangs up, and an unclear end means outcome unknown
	urgent bool     // the rate limit of writes does not refuse it
	free   bool     // it needs no share, so that probes get an answer under load
	do     func(*call) error
}
