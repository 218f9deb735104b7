package console

import (
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
)

// frame is the part of every page around its content.
type frame struct {
	Title, Head, Crumb string
	Base, CSRF, Query  string
	Live               string // the shortest time in milliseconds after which the page refreshes; "" for never
	Of                 string // the query of the only run whose changes affect the page; "" for all
	Nav                []navItem
	State              draw.Badge
	Host, Who          string
	Admin, ReadOnly    bool
	Notes              []string
	Assets             assets
	Hot                int // how much needs a person
	Now                ckpt.Time
}

type navItem struct {
	Name, Href, Key string
	Here            bool
	Count           int
}

// screens are the pages that the navigation links to.
var screens = []struct{ name, path, key string }{
	{"Overview", "", "o"}, {"Runs", "runs", "r"}, {"Drift", "drift", "d"}, {"Storage", "storage", "s"},
	{"Audit", "audit", "a"}, {"System", "system", "y"},
}

// host returns the name of this machine, without its domain.
var host = func() string {
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	return name
}()

// frameOf returns the frame of a page. here is the screen in the navigation that it
// belongs to.
func (c *Console) frameOf(r *http.Request, title, here string) frame {
	x := sessionOf(r)
	f := frame{
		Title: title, Base: x.base(), CSRF: x.csrf, Assets: c.pages.assets, ReadOnly: c.options.ReadOnly,
		Host: host, Who: c.daemon.who, Admin: c.daemon.isAdmin(), Now: ckpt.At(c.options.Now()), State: c.pulse.state(),
	}
	f.Hot = c.pulse.needs()
	if !c.daemon.awaySince().IsZero() {
		f.State = draw.Badge{Class: "crit", Icon: "crit", Word: "no answer"}
	}
	if r.Header.Get(headerLive) == "" {
		f.Notes = x.takeNotes()
	}
	for _, s := range screens {
		item := navItem{Name: s.name, Href: f.Base + s.path, Key: s.key, Here: s.path == here}
		if s.path == "" {
			item.Count = f.Hot
		}
		f.Nav = append(f.Nav, item)
	}
	if c.daemon.inFleet() {
		f.Nav = append(f.Nav, navItem{Name: "Fleet", Href: f.Base + "fleet", Key: "f", Here: here == "fleet"})
	}
	return f
}

// show draws a page. A page that refreshes gets 304 if its content would be the same.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, name string, view any) {
	text, err := c.pages.draw(name, view)
	if err != nil {
		c.options.Log(err)
		refuse(w, http.StatusInternalServerError, "The page cannot be drawn.")
		return
	}
	if status == http.StatusOK {
		etag := tag(text)
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag && r.Header.Get(headerLive) != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	writePacked(w, r, status, text)
}

// leastPacked is the size from which a text is worth compressing.
const leastPacked = 1400

// writePacked writes a text, compressed if the browser takes that: pages come through ssh from far away.
func writePacked(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	if len(text) < leastPacked || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(text)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(text)
	_ = z.Close()
}

// troubleView shows what went wrong.
type troubleView struct {
	frame
	What, Detail string
	Back         string
	Again        *askView // the same form with the same key, if it is unknown whether the action was done
}

// trouble shows an error of the daemon. It leads back to the overview.
func (c *Console) trouble(w http.ResponseWriter, r *http.Request, err error) {
	c.troubleAt(w, r, sessionOf(r).base(), err)
}

// troubleAt shows an error of the daemon, and leads back to a page.
func (c *Console) troubleAt(w http.ResponseWriter, r *http.Request, back string, err error) {
	status, what := http.StatusInternalServerError, "The daemon could not do this"
	var e *ckpt.Error
	switch {
	case away(err):
		c.daemon.isAway(c.options.Now())
		status, what = http.StatusServiceUnavailable, "The daemon is away"
		if errors.Is(err, context.DeadlineExceeded) {
			what = "The daemon does not answer" // it runs, and it is frozen or overloaded
		}
	case errors.As(err, &e):
		status, what = statusOfCode(e.Code)
	}
	if r.Header.Get(headerLive) != "" {
		if since := c.daemon.awaySince(); !since.IsZero() {
			w.Header().Set("Ckpt-Away-Since", since.String())
			w.Header().Set("Ckpt-Away-What", what)
		}
		refuse(w, status, what)
		return
	}
	v := troubleView{frame: c.frameOf(r, what, "-"), What: what, Detail: messageOf(err), Back: back}
	if status == http.StatusServiceUnavailable {
		v.Live = "2000" // the page refreshes until the daemon is back
	}
	c.show(w, r, status, "trouble", v)
}

func statusOfCode(code ckpt.Code) (int, string) {
	switch code {
	case ckpt.CodeNotFound:
		return http.StatusNotFound, "It is not there"
	case ckpt.CodeDenied:
		return http.StatusForbidden, "Only an administrator may do this"
	case ckpt.CodeInvalid, ckpt.CodeSchemaMismatch, ckpt.CodeTooLarge:
		return http.StatusUnprocessableEntity, "The daemon refused this"
	case ckpt.CodeConflict, ckpt.CodeFenced, ckpt.CodeIdempotencyMismatch:
		return http.StatusConflict, "It has changed in the meantime"
	case ckpt.CodeBusy, ckpt.CodeStorageFull, ckpt.CodeQuota:
		return http.StatusServiceUnavailable, "The daemon cannot do this now"
	case ckpt.CodeCorrupt:
		return http.StatusInternalServerError, "What is stored is damaged"
	}
	return http.StatusInternalServerError, "The daemon could not do this"
}

// messageOf returns the sentence for people.
func messageOf(err error) string {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}
