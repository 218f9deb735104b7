package console

import (
	"context"
	"net/http"
)

// routes are the pages of a session. A read-only console does not have the routes that
// write.
func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	long := func(pattern string, page http.HandlerFunc) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			c.pulse.look(c.options.Now())
			ctx, cancel := context.WithTimeout(r.Context(), c.options.Patience)
			err := c.daemon.learn(ctx)
			cancel()
			if err != nil {
				c.trouble(w, r, err)
				return
			}
			page(w, r)
		})
	}
	read := func(pattern string, page http.HandlerFunc) {
		long(pattern, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), c.options.Patience)
			defer cancel()
			page(w, r.WithContext(ctx))
		})
	}
	read("/{$}", c.overview)
	read("/o/{owner}/{agent}/{run}", c.run)
	read("/o/{owner}/{agent}/{run}/steps", c.transcript)
	read("/o/{owner}/{agent}/{run}/state", c.statePage)
	read("/runs", c.runs)
	read("/find", c.find)
	read("/fleet", c.fleet)
	read("/storage", c.storage)
	read("/audit", c.audit)
	long("/audit/chain", c.chain)
	read("/system", c.system)
	read("/o/{owner}/{agent}/{run}/tree", c.tree)
	read("/drift", c.drift)
	long("/drift/whatif", c.whatIf)
	long("/changes", c.changes)
	long("/raw/{owner}/{id}", c.raw)
	if !c.options.ReadOnly {
		read("/ask/{what}", c.ask)
		mux.HandleFunc("POST /act/{what}", c.act)
	}
	mux.HandleFunc("POST /leave", c.leave)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "There is no such page.")
	})
	return mux
}

// leave ends the session.
func (c *Console) leave(w http.ResponseWriter, r *http.Request) {
	x := sessionOf(r)
	c.doors.close(x)
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: x.base(), MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
