package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Options say where a console listens and for which caller it works.
type Options struct {
	Socket   string      // of the daemon; "" finds it as every command does
	Owner    string      // whose agents it shows; "" for the caller's own, or everybody's if the caller is an administrator
	Listen   string      // an address of loopback; "" is 127.0.0.1 with any free port
	Insecure bool        // Listen may be an address that other machines can reach
	PortSeen int         // the port in the address that the browser uses, if it is another one, as behind ssh -L; 0 if not
	ReadOnly bool        // there are no forms, and no routes that write
	Version  string      // of this program
	Doctor   Doctor      // checks the machine; nil for no checks
	Log      func(error) // gets errors of the console itself; nil for none
	Now      func() time.Time
	Patience time.Duration // how long a page waits for an answer of the daemon; 0 means 6 s

	admit func(net.Conn) error // tests only; nil for the check of this system
}

// The limits of a console.
const (
	maxConnections = 64
	maxHeader      = 1 << 20     // the form of a policy sends all of it in the address
	lastAnswers    = time.Second // how long a console still answers after its end has begun
)

// Console serves the pages of one caller.
type Console struct {
	options  Options
	listener net.Listener
	second   net.Listener // of [::1] on the same port; nil if there is none
	host     string       // of Options.Listen
	doors    *sessions
	daemon   *daemon
	pages    *pages
	pulse    *pulse
	feed     *feed
	ended    chan struct{}
	end      sync.Once
	failure  error
	conns    chan struct{}
}

// New starts to listen. It does not serve yet.
func New(ctx context.Context, o Options) (*Console, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Log == nil {
		o.Log = func(error) {}
	}
	if o.Patience <= 0 {
		o.Patience = 6 * time.Second
	}
	if o.admit == nil {
		o.admit = admit
	}
	if err := CheckListen(o.Listen, o.Insecure); err != nil {
		return nil, err
	}
	pages, err := newPages()
	if err != nil {
		return nil, err
	}
	c := &Console{options: o, pages: pages, ended: make(chan struct{}), conns: make(chan struct{}, maxConnections)}
	c.doors = newSessions(o.Now, c.fail)
	c.daemon = newDaemon(o)
	c.pulse = &pulse{}
	c.feed = newFeed(c.daemon, followLonger)
	var config net.ListenConfig
	if c.listener, err = config.Listen(ctx, "tcp", o.Listen); err != nil {
		return nil, err
	}
	port := c.listener.Addr().(*net.TCPAddr).Port
	if c.host, _, _ = net.SplitHostPort(o.Listen); c.host == "127.0.0.1" {
		// A browser can resolve localhost to ::1. Without IPv6, it does not.
		if second, err := config.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(port))); err == nil {
			c.second = second
		}
	}
	return c, nil
}

// CheckListen refuses an address that other machines can reach.
func CheckListen(listen string, insecure bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %s is no address: say 127.0.0.1:PORT", listen)
	}
	if insecure {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--listen %s is not an address of loopback, so that others reach it, and nothing is encrypted: "+
		"use `ssh -L` (docs/CONSOLE.md), or say --insecure-listen as well", listen)
}

// knows reports whether a browser may send this Host. A request with any other value comes
// from a page whose name was made to point here. A console that listens on all addresses of
// the machine does not know them, but the name of a page is no address.
func (c *Console) knows(host string) bool {
	name, port := splitHost(host)
	at := c.listener.Addr().(*net.TCPAddr)
	if port != strconv.Itoa(at.Port) && (c.options.PortSeen == 0 || port != strconv.Itoa(c.options.PortSeen)) {
		return false
	}
	_, err := netip.ParseAddr(name)
	return name == "127.0.0.1" || name == "localhost" || name == "::1" || name == c.host ||
		c.options.Insecure && at.IP.IsUnspecified() && err == nil
}

// splitHost returns the name and the port of a Host. Browsers leave out the usual port.
func splitHost(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "80"
}

// Address returns the address at which the console listens.
func (c *Console) Address() string { return c.listener.Addr().String() }

// Link returns a link that opens a session. It works once, for a minute. If the console
// listens on all addresses, the link has the one of this machine's own browser.
func (c *Console) Link() (link string, used <-chan struct{}) {
	token, used := c.doors.newToken()
	host, port, _ := net.SplitHostPort(c.Address())
	if c.listener.Addr().(*net.TCPAddr).IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	if c.options.PortSeen != 0 {
		port = strconv.Itoa(c.options.PortSeen)
	}
	return "http://" + net.JoinHostPort(host, port) + "/#" + token, used
}

// CheckedPeer reports whether the console asks the kernel who connects. If it does not,
// only the link and the cookie protect it.
func CheckedPeer() bool { return checksPeer }

// fail ends the console.
func (c *Console) fail(err error) {
	c.end.Do(func() { c.failure = err; close(c.ended) })
}

// Serve serves until the context ends, or until an error ends the console.
func (c *Console) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer c.daemon.close()
	defer c.feed.stop()
	server := &http.Server{
		Handler: c.handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go c.sample(ctx)
	errs := make(chan error, 2)
	for _, l := range []net.Listener{c.listener, c.second} {
		if l != nil {
			go func() { errs <- server.Serve(&gate{l, c}) }()
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case <-c.ended:
		err = c.failure
		// The client that sent the last wrong code still gets an answer.
		last, done := context.WithTimeout(ctx, lastAnswers)
		_ = server.Shutdown(last)
		done()
	case err = <-errs:
	}
	_ = server.Close()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// gate accepts only connections that the kernel assigns to the console's own user, and
// limits their number.
type gate struct {
	net.Listener
	c *Console
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case g.c.conns <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		if remote, ok := conn.RemoteAddr().(*net.TCPAddr); !ok || remote.IP.IsLoopback() || !g.c.options.Insecure {
			if err := g.c.options.admit(conn); err != nil {
				_ = conn.Close()
				<-g.c.conns
				continue
			}
		}
		return &counted{Conn: conn, leave: func() { <-g.c.conns }}, nil
	}
}

// counted is a connection that releases its place when it closes.
type counted struct {
	net.Conn
	once  sync.Once
	leave func()
}

func (c *counted) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}

// hash returns a short identifier for bytes.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// connection returns a connection to the daemon for one owner's agents.
func connection(socket, owner string) *client.Client {
	return &client.Client{Socket: socket, Owner: owner}
}
