package console

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
)

// maxBody is the largest request: a form with an edited state.
const maxBody = 2 << 20

// policyOfContent allows a page to load only what this console serves. The pages have no style attributes and no inline
// scripts.
const policyOfContent = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// headerLive marks requests that a page makes without a person. Its value is liveHidden if nobody can see the page.
const (
	headerLive = "Ckpt-Live"
	liveHidden = "hidden"
)

// sessionKey is the context key of a request's session.
type sessionKey struct{}

func sessionOf(r *http.Request) *session { return r.Context().Value(sessionKey{}).(*session) }

// guard checks every request first. It checks the host name that the browser used: a page that makes its own name point
// to loopback sends that name.
func (c *Console) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if !c.knows(r.Host) {
			w.WriteHeader(http.StatusMisdirectedRequest)
			return
		}
		h.Set("Content-Security-Policy", policyOfContent)
		// The policy is not no-referrer: with that, the console's own forms would send "Origin: null". Other origins,
		// including other ports, get no referrer.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			if !c.fromOwnPage(r) {
				refuse(w, http.StatusForbidden, "This request does not come from a page of this console.")
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		default:
			refuse(w, http.StatusMethodNotAllowed, "This method is not used here.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fromOwnPage reports whether a request comes from the same address that it goes to.
func (c *Console) fromOwnPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "" && c.options.Insecure && !isLoopback(r.Host) {
		site = "same-origin" // browsers say it only to loopback and over TLS
	}
	return site == "same-origin" && r.Header.Get("Origin") == "http://"+r.Host
}

// isLoopback reports whether a Host is of loopback.
func isLoopback(host string) bool {
	name, _ := splitHost(host)
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// refuse answers with one line, without a page.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// handler returns the handler of the whole console.
func (c *Console) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", c.door)
	mux.HandleFunc("POST /open", c.open)
	mux.HandleFunc("GET /asset/{name}", c.pages.asset)
	inside := c.routes()
	mux.HandleFunc("/s/{session}/", func(w http.ResponseWriter, r *http.Request) {
		x := c.doors.of(r, r.PathValue("session"), r.Header.Get(headerLive) != liveHidden)
		if x == nil {
			c.stranger(w, r)
			return
		}
		if r.Method == http.MethodPost && !c.hasToken(w, r, x) {
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, x))
		http.StripPrefix(strings.TrimSuffix(x.base(), "/"), inside).ServeHTTP(w, r)
	})
	return c.guard(mux)
}

// hasToken refuses a form that was not drawn for this session.
func (c *Console) hasToken(w http.ResponseWriter, r *http.Request, x *session) bool {
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "The form cannot be read, or is too large.")
		return false
	}
	if !same(x.csrf, r.PostForm.Get("csrf")) {
		refuse(w, http.StatusForbidden, "The form was not made for this session.")
		return false
	}
	return true
}

// stranger answers a request that has no session, or an ended one.
func (c *Console) stranger(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(headerLive) != "" {
		refuse(w, http.StatusForbidden, "The session has ended.")
		return
	}
	// The address can come from somebody else, whose session has another path.
	at := ""
	if r.Method == http.MethodGet {
		at = strings.TrimPrefix(r.URL.RequestURI(), "/s/"+r.PathValue("session")+"/")
	}
	c.pages.write(w, http.StatusForbidden, "door", doorView{Ended: true, Next: at, Assets: c.pages.assets})
}

// door serves the page of a link. Its script sends the code of the link. Without the script, a person can type the
// code. Any other address is that of a page, without a session: the person goes there from the door.
func (c *Console) door(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		http.NotFound(w, r)
		return
	}
	c.pages.write(w, http.StatusOK, "door", doorView{Next: strings.TrimPrefix(r.URL.RequestURI(), "/"), Assets: c.pages.assets})
}

// doorView is the page before a session.
type doorView struct {
	Ended, Wrong, Old bool
	Next              string // the address of the page to go to, in the session
	Assets            assets
}

// open exchanges the code of a link for a session.
func (c *Console) open(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "The form cannot be read.")
		return
	}
	x, old := c.doors.exchange(strings.TrimSpace(r.PostForm.Get("code")))
	if x == nil {
		c.pages.write(w, http.StatusForbidden, "door", doorView{Wrong: !old, Old: old, Next: r.PostForm.Get("next"), Assets: c.pages.assets})
		return
	}
	next, err := url.Parse(r.PostForm.Get("next"))
	if err != nil || next.IsAbs() || next.Host != "" {
		next = &url.URL{}
	}
	next.Path = x.base() + strings.TrimPrefix(path.Clean("/"+next.Path), "/")
	next.RawPath = ""
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: x.secret, Path: x.base(), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, next.String(), http.StatusSeeOther)
}
