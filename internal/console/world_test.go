package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	real "github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// world is a real daemon with a console in front of it, and a browser with a session.
type world struct {
	*browser
	t       *testing.T
	client  *client.Client
	console *served
	owner   string
	file    string // the database
	stop    func() // ends the daemon
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldWith(t, func(*real.Config) {})
}

// worldWith returns a world whose daemon has other settings.
func worldWith(t *testing.T, set func(*real.Config)) *world {
	t.Helper()
	config := real.Default(false, func(name string) string {
		if name == "HOME" {
			return os.Getenv("HOME")
		}
		return ""
	})
	config.Database, config.Socket = filepath.Join(t.TempDir(), "ckpt.db"), filepath.Join(t.TempDir(), "s")
	set(&config)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- (&real.Daemon{Config: config, Version: "test", Hurry: make(chan struct{}), Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	line := &client.Client{Socket: config.Socket}
	end := sync.OnceFunc(func() {
		line.Close()
		stop()
		<-over // it still writes into a folder that is then removed
	})
	t.Cleanup(end)
	for line.Ready(t.Context()) != nil {
		select {
		case err := <-over:
			over <- err
			t.Fatalf("the daemon ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	s := serve(t, Options{Socket: config.Socket})
	return &world{browser: s.open(), t: t, client: line, console: s, owner: s.daemon.who, file: config.Database, stop: end}
}

// save saves a state of a run.
func (w *world) save(agent, run, state string) *ckpt.Saved {
	w.t.Helper()
	saved, err := w.client.Save(w.t.Context(), &ckpt.SaveRequest{
		Agent: agent, Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(state),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return saved
}

// page reads a page of the session.
func (w *world) page(path string) string {
	w.t.Helper()
	r := w.send("GET", w.base+path, nil, nil)
	if r.StatusCode != http.StatusOK {
		w.t.Fatalf("%s is answered with %s", path, r.Status)
	}
	return w.text("GET", w.base+path, nil)
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// form returns a form as it is drawn: the values that it sends if nothing is
// filled in.
func (w *world) form(path string) (values url.Values, page string) {
	w.t.Helper()
	page, values = w.page(path), url.Values{}
	_, form, _ := strings.Cut(page, `class="ask"`)
	for _, m := range hiddenField.FindAllStringSubmatch(form, -1) {
		values.Add(m[1], unescaped(m[2]))
	}
	return values, page
}

func unescaped(s string) string {
	return strings.NewReplacer("&amp;", "&", "&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&#43;", "+").Replace(s)
}

// act sends a form, and returns the status and the text of the page.
func (w *world) act(what string, values url.Values) (int, string) {
	w.t.Helper()
	r := w.send("POST", w.base+"act/"+what, values, func(r *http.Request) { r.Header.Set(headerForm, "1") })
	text := new(strings.Builder)
	buffer := make([]byte, 1<<16)
	for {
		n, err := r.Body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return r.StatusCode, text.String()
		}
	}
}

// reasons returns the reasons in the audit log, by action.
func (w *world) reasons() map[string][]string {
	w.t.Helper()
	page, err := client.Operator{Client: w.client}.Audit(w.t.Context(), ckpt.AuditFilter{Newest: true, Limit: 200})
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string][]string{}
	for _, row := range page.Audit {
		found[row.Action] = append(found[row.Action], string(row.Reason))
	}
	return found
}

// formOf returns the query that identifies a checkpoint in forms.
func (w *world) formOf(saved *ckpt.Saved, agent, run string) string {
	return url.Values{"owner": {w.owner}, "agent": {agent}, "run": {run}, "checkpoint": {saved.ID}}.Encode()
}
