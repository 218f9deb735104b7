package consolecmd

import (
	"bufio"
	"context"
	"html"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/doctor"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/console"
)

// Command serves the console until it is stopped.
type Command struct {
	NoOpen   bool   `name:"no-open" help:"Open no browser; print a link instead."`
	ReadOnly bool   `name:"read-only" help:"Show everything, and allow no changes."`
	Listen   string `default:"127.0.0.1:0" help:"The address of loopback to listen on. Default: ${default}, any free port." placeholder:"ADDRESS"`
	PortSeen int    `name:"port-seen" help:"The port in the address that the browser uses, where it is another one, as with ssh -L." placeholder:"N"`
	Insecure bool   `name:"insecure-listen" help:"Let other machines reach --listen. Nothing is encrypted, and nobody checks who connects."`
}

// Help returns the additional text of `console --help`.
func (*Command) Help() string {
	return "Opens a page that shows what needs a person, every run on one time axis, and each run as a flight recorder. " +
		"The console is a process of your own that speaks to the daemon as you; it ends with Ctrl-C. " +
		"Press Enter for a new link: each works once, for a minute. docs/CONSOLE.md has more."
}

// collectAt makes the run-time collect the memory of drawn pages sooner than usual: a
// console runs all day next to other work, and rarely draws.
const collectAt = 40

// Run serves until the context ends.
func (c *Command) Run(ctx context.Context, a *cli.App) error {
	if c.PortSeen < 0 || c.PortSeen > 65535 {
		return cli.Usagef("--port-seen must be a port from 1 to 65535; got %d", c.PortSeen)
	}
	if err := console.CheckListen(c.Listen, c.Insecure); err != nil {
		return cli.Usagef("%s", err)
	}
	if a.Env("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	s, err := console.New(ctx, console.Options{
		Socket: a.Socket, Owner: a.Owner, Listen: c.Listen, Insecure: c.Insecure, PortSeen: c.PortSeen, ReadOnly: c.ReadOnly,
		Log: func(err error) { a.Tell("%v", err) },
		Doctor: func(ctx context.Context) (list []console.Check, err error) {
			err = doctor.Look(ctx, a, func(check, level, what, do string) {
				list = append(list, console.Check{Name: check, Level: level, What: what, Do: do})
			})
			return list, err
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go c.invite(ctx, a, s)
	return s.Serve(ctx)
}

// invite opens the console in a browser, and makes another link for each line of the
// input.
func (c *Command) invite(ctx context.Context, a *cli.App, s *console.Console) {
	if !console.CheckedPeer() {
		a.Tell("this system does not report the owner of a connection: only the link and the cookie keep other users out")
	}
	link, used := s.Link()
	if c.NoOpen {
		term.Println(a.Stdout, link)
	} else if err := open(ctx, link, used); err != nil {
		a.Tell("ckptsidecar could not open a browser (%v); open this link yourself; it works once, for one minute:", err)
		term.Println(a.Stdout, link)
	} else {
		a.Tell("the console is open in your browser, at http://%s; Enter prints a link, Ctrl-C ends it", s.Address())
	}
	for lines := bufio.NewScanner(a.Stdin); lines.Scan() && ctx.Err() == nil; {
		link, _ := s.Link()
		term.Println(a.Stdout, link)
	}
}

// open opens a link in a browser without its code on any command line, because ps would
// show the code to everybody. The browser gets the name of a file that leads to the link
// and that only this user can read. The file is removed when the link is used or too old.
func open(ctx context.Context, link string, used <-chan struct{}) error {
	name, err := forwarder(link)
	if err != nil {
		return err
	}
	remove := func() { _ = os.RemoveAll(filepath.Dir(name)) }
	if err := browse(ctx, name); err != nil {
		remove()
		return err
	}
	go func() {
		defer remove()
		timer := time.NewTimer(time.Minute)
		defer timer.Stop()
		select {
		case <-used:
		case <-timer.C:
		case <-ctx.Done():
		}
	}()
	return nil
}

// forwarder writes a page that leads to the link, in a folder that only this user can
// enter.
func forwarder(link string) (name string, err error) {
	folder, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "ckptsidecar-console-")
	if err != nil {
		return "", err
	}
	name = filepath.Join(folder, "open.html")
	page := `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>ckptsidecar</title>` +
		`<meta http-equiv="refresh" content="0;url=` + html.EscapeString(link) + `">` + "\n"
	if err = os.WriteFile(name, []byte(page), 0o600); err != nil {
		_ = os.RemoveAll(folder)
	}
	return name, err
}
