package receiver

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// door counts connections at accept, and closes those above the limits.
type door struct {
	net.Listener
	receiver *Receiver
}

// Accept waits for a connection within the limits.
func (d *door) Accept() (net.Conn, error) {
	for {
		inner, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := d.receiver.admit(inner); c != nil {
			return c, nil
		}
		_ = inner.Close()
	}
}

func (r *Receiver) admit(inner net.Conn) net.Conn {
	c := &conn{Conn: inner, receiver: r}
	if peer, known := endpoint.PeerOf(inner); known {
		c.caller = ckpt.Caller{Owner: peer.Owner, PID: peer.PID, Admin: peer.Admin}
		if !c.belongsTo(r.owner(peer.Owner)) {
			return nil
		}
		return c
	}
	if !isLoopback(inner.RemoteAddr()) {
		return nil
	}
	r.strangers.add(c)
	return c
}

func isLoopback(a net.Addr) bool {
	at, err := netip.ParseAddrPort(a.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// identify returns the owner of the spans. Nothing in the spans can change it.
func (c *call) identify(ctx context.Context) (ckpt.Caller, error) {
	at, _ := c.r.Context().Value(connKey{}).(*conn)
	if at != nil && at.caller.Owner != "" {
		return at.caller, nil
	}
	if !isLocalHost(c.r.Host) {
		return ckpt.Caller{}, &refusal{http.StatusForbidden, ckpt.Errorf(ckpt.CodeDenied, "use localhost or 127.0.0.1 as the host name of this port")}
	}
	// The headers in the environment of exporters are percent-encoded, and Claude Code sends them as they stand.
	scheme, token, _ := strings.Cut(strings.Replace(c.r.Header.Get("Authorization"), "%20", " ", 1), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return ckpt.Caller{}, c.noToken("the token is missing")
	}
	owner, err := c.receiver.opt.Store.OwnerOfToken(ctx, strings.TrimSpace(token))
	if ckpt.CodeOf(err) == ckpt.CodeDenied {
		return ckpt.Caller{}, c.noToken("the token is unknown or was revoked")
	}
	if err == nil && at != nil && !at.belongsTo(c.receiver.owner(owner)) {
		return ckpt.Caller{}, busy("you have too many connections to this port: close some, or use fewer exporters")
	}
	return ckpt.Caller{Owner: owner}, err
}

// noToken refuses a request without a valid token.
func (c *call) noToken(why string) error {
	c.receiver.wrong.Do(func() {
		c.receiver.log.Warn("spans were refused at the loopback port", "why", why)
		c.receiver.opt.Store.Refused(c.r.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "nobody"}},
			ckpt.Refusal{Action: "observe_spans", Code: ckpt.CodeDenied, Reason: "at the loopback port: " + why})
	})
	return &refusal{http.StatusUnauthorized, ckpt.Errorf(ckpt.CodeDenied,
		"%s: make one with `ckptsidecar token create`, and send it as Authorization: Bearer TOKEN", why)}
}

// isLocalHost reports whether a host name means this machine. A web page can make a
// browser call this machine under another name; such requests are refused.
func isLocalHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && address.Unmap().IsLoopback()
}
