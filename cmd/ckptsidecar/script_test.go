package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/clitest"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// TestMain runs the tests, or the program if a test has started this binary. Commands that a test calls in this
// process start themselves as children: exec starts the one that waits.
func TestMain(m *testing.M) {
	programs := map[string]func(){"ckptsidecar": main, "statements": statements, "spooler": spooler, "claimer": claimer, "payer": payer}
	_, named := programs[strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")]
	if !named && os.Getenv(testenv.Marker) != "" && len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		main()
		return
	}
	testscript.Main(isolated{m}, programs)
}

// isolated runs the tests in a separate home. The commands that testscript runs with this binary do not use it.
type isolated struct{ m *testing.M }

func (i isolated) Run() int { return testenv.Run(i.m.Run) }

// TestStories plays testdata/*.txtar: each is a story with the real daemon in the background, and with sqlite3 if
// it is installed.
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=10") // under the race detector a program waits a second at its end
			env.Setenv(testenv.Marker, os.Getenv(testenv.Marker))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("CKPTSIDECAR_HOOK_TIMEOUT", "20s") // a busy machine takes longer than an agent should wait
			env.Setenv("CKPTSIDECAR_DB", filepath.Join(env.WorkDir, "data", "ckpt.db"))
			env.Setenv("CKPTSIDECAR_SOCKET", filepath.Join(env.WorkDir, "run", "sock"))
			env.Setenv("OWNER", fmt.Sprintf("uid:%d", os.Getuid()))
			env.Values["surf"] = map[string]*surfing{}
			return nil
		},
		Cmds:                clitest.Commands(map[string]clitest.Command{"ready": ready, "aged": aged, "surf": surf}),
		RequireExplicitExec: true,
	})
}

// ready waits until the daemon answers.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	client := client.Client{Socket: ts.Getenv("CKPTSIDECAR_SOCKET")}
	defer client.Close()
	clitest.Until(ts, "the daemon does not become ready", func() bool { return client.Ready(context.Background()) == nil })
}

// aged makes the database of a daemon that ran forty days ago, in which an agent saved forty times.
func aged(ts *testscript.TestScript, _ bool, _ []string) {
	then := time.Now().Add(-40 * 24 * time.Hour)
	path := ts.Getenv("CKPTSIDECAR_DB")
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o700))
	s, err := db.Open(context.Background(), db.Options{Path: path, Retention: retention.Plan, Now: func() time.Time { return then }})
	ts.Check(err)
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:" + strconv.Itoa(os.Getuid())}}
	for i := range 40 {
		_, err := s.Save(context.Background(), sc, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: fmt.Append(nil, i)})
		ts.Check(err)
	}
	ts.Check(s.Close())
}

// surfing is the browser of a story: its cookie, and the path of its session.
type surfing struct {
	cookie *http.Cookie
	base   string
	csrf   string
}

// surf requests a page of a console as a browser does: surf FILE open|get|post STATUS PATH. FILE contains the link
// that the console printed. The page is written to the file page.
func surf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: surf file open|get|post status [path]")
	}
	link, code, _ := strings.Cut(strings.TrimSpace(ts.ReadFile(args[0])), "/#")
	open := ts.Value("surf").(map[string]*surfing)
	if open[args[0]] == nil {
		open[args[0]] = &surfing{}
	}
	b := open[args[0]]
	method, path, form := http.MethodGet, b.base+strings.Join(args[3:], ""), url.Values{}
	switch args[1] {
	case "open":
		method, path, form = http.MethodPost, "/open", url.Values{"code": {code}}
	case "post":
		method, form = http.MethodPost, url.Values{"csrf": {b.csrf}}
	}
	r, err := http.NewRequestWithContext(context.Background(), method, link+path, strings.NewReader(form.Encode()))
	ts.Check(err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", link)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	ts.Check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("page"), text, 0o600))
	if got := strconv.Itoa(answer.StatusCode); got != args[2] {
		ts.Fatalf("%s %s is answered %s, want %s: %s", args[1], path, got, args[2], text)
	}
	if list := answer.Cookies(); len(list) > 0 {
		b.cookie, b.base = list[0], answer.Header.Get("Location")
	}
	if _, rest, found := strings.Cut(string(text), `name="csrf" value="`); found {
		b.csrf, _, _ = strings.Cut(rest, `"`)
	}
}
