package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// served is a running console without a daemon: the protection against others comes before the daemon.
type served struct {
	*Console
	t       *testing.T
	address string
	failure chan error
}

func serve(t *testing.T, o Options) *served {
	t.Helper()
	if o.Socket == "" {
		o.Socket = filepath.Join(t.TempDir(), "none")
	}
	c, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &served{Console: c, t: t, address: c.Address(), failure: make(chan error, 1)}
	go func() { s.failure <- c.Serve(ctx) }()
	t.Cleanup(stop)
	return s
}

// browser is what one browser sends by itself.
type browser struct {
	s      *served
	client *http.Client
	base   string // the path of its session
	cookie *http.Cookie
	csrf   string
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// open opens a session with a new link.
func (s *served) open() *browser {
	s.t.Helper()
	link, _ := s.Link()
	_, code, _ := strings.Cut(link, "#")
	b := &browser{s: s, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.t.Cleanup(b.client.CloseIdleConnections)
	r := b.send("POST", "/open", url.Values{"code": {code}}, nil)
	if r.StatusCode != http.StatusSeeOther {
		s.t.Fatalf("the link opens nothing: %d", r.StatusCode)
	}
	b.base, b.cookie = r.Header.Get("Location"), r.Cookies()[0]
	b.csrf = csrfField.FindStringSubmatch(b.text("GET", b.base, nil))[1]
	return b
}

// send sends a request as our own pages do. change modifies it.
func (b *browser) send(method, path string, form url.Values, change func(*http.Request)) *http.Response {
	b.s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequest(method, "http://"+b.s.address+path, body)
	if err != nil {
		b.s.t.Fatal(err)
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+b.s.address)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if change != nil {
		change(r)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		b.s.t.Fatal(err)
	}
	b.s.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func (b *browser) text(method, path string, form url.Values) string {
	b.s.t.Helper()
	text, err := io.ReadAll(b.send(method, path, form, nil).Body)
	if err != nil {
		b.s.t.Fatal(err)
	}
	return string(text)
}

// TestForgedRequests sends what web pages, other users' servers and curious people can send, each next to the same
// correct request.
func TestForgedRequests(t *testing.T) {
	s := serve(t, Options{})
	mine, other := s.open(), s.open()
	_, port, _ := net.SplitHostPort(s.address)
	write := mine.base + "leave" // a write that needs no daemon
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	without := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	hostName := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	const refused, misdirected = http.StatusForbidden, http.StatusMisdirectedRequest
	for _, c := range []struct {
		name         string
		method, path string
		csrf         string
		change       func(*http.Request)
		want         int
	}{
		{"a rebound name", "GET", mine.base, "", hostName("evil.example:" + port), misdirected},
		{"a rebound name without a port", "GET", mine.base, "", hostName("127.0.0.1"), misdirected},
		{"another port in the name", "GET", mine.base, "", hostName("127.0.0.1:1"), misdirected},
		{"a name that ends as ours", "GET", mine.base, "", hostName("x.localhost:" + port), misdirected},
		{"a rebound name, for a file", "GET", s.pages.assets.CSS, "", hostName("evil.example:" + port), misdirected},
		{"a rebound name, for the door", "GET", "/", "", hostName("evil.example:" + port), misdirected},
		{"no cookie", "GET", mine.base, "", without("Cookie"), refused},
		{"a made-up cookie", "GET", mine.base, "", header("Cookie", cookieName+"=AAAA"), refused},
		{"another session's path", "GET", other.base, "", nil, refused},
		{"a made-up path", "GET", "/s/AAAA/", "", nil, refused},
		{"another session's path, to write", "POST", other.base + "leave", mine.csrf, nil, refused},
		{"no token of the form", "POST", write, "", nil, refused},
		{"the token of another session", "POST", write, other.csrf, nil, refused},
		{"another origin", "POST", write, mine.csrf, header("Origin", "http://evil.example"), refused},
		{"the origin of another port", "POST", write, mine.csrf, header("Origin", "http://127.0.0.1:1"), refused},
		{"our origin under another name", "POST", write, mine.csrf, header("Origin", "http://localhost:"+port), refused},
		{"a secure origin", "POST", write, mine.csrf, header("Origin", "https://"+s.address), refused},
		{"no origin", "POST", write, mine.csrf, without("Origin"), refused},
		{"the origin null", "POST", write, mine.csrf, header("Origin", "null"), refused},
		{"another site", "POST", write, mine.csrf, header("Sec-Fetch-Site", "cross-site"), refused},
		{"the same site, but another port", "POST", write, mine.csrf, header("Sec-Fetch-Site", "same-site"), refused},
		{"typed into the address", "POST", write, mine.csrf, header("Sec-Fetch-Site", "none"), refused},
		{"no word about the site", "POST", write, mine.csrf, without("Sec-Fetch-Site"), refused},
		{"a write as a read", "GET", write, "", nil, http.StatusNotFound},
		{"another method", "PUT", write, "", nil, http.StatusMethodNotAllowed},
		{"a code from another site", "POST", "/open", "", header("Sec-Fetch-Site", "cross-site"), refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			var form url.Values
			if c.method == "POST" {
				form = url.Values{"csrf": {c.csrf}}
			}
			r := mine.send(c.method, c.path, form, c.change)
			if r.StatusCode != c.want {
				t.Errorf("answered %d, want %d", r.StatusCode, c.want)
			}
			text, _ := io.ReadAll(r.Body)
			if c.want == misdirected && len(text) > 0 {
				t.Errorf("a stranger's name is answered with %q", text)
			}
			if strings.Contains(string(text), mine.csrf) || strings.Contains(string(text), other.csrf) {
				t.Error("the answer tells a token")
			}
		})
	}
	// The same requests in their correct form: the read reports that there is no daemon, and the write is done.
	if r := mine.send("GET", mine.base, nil, nil); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("an honest read is answered %d", r.StatusCode)
	}
	if r := mine.send("GET", mine.base, nil, hostName("localhost:"+port)); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("an honest read by the other name is answered %d", r.StatusCode)
	}
	if r := mine.send("POST", write, url.Values{"csrf": {mine.csrf}}, nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("an honest write is answered %d", r.StatusCode)
	}
	if r := mine.send("GET", mine.base, nil, nil); r.StatusCode != refused {
		t.Errorf("a session that has ended is answered %d", r.StatusCode)
	}
}

// TestHeaders checks the headers that every answer has.
func TestHeaders(t *testing.T) {
	s := serve(t, Options{})
	b := s.open()
	for _, path := range []string{"/", s.pages.assets.CSS, s.pages.assets.JS, b.base, b.base + "nothing", "/nothing"} {
		h := b.send("GET", path, nil, nil).Header
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": policyOfContent,
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "same-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if got := h.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s lets %q read it", path, got)
		}
	}
	if strings.Contains(policyOfContent, "unsafe") {
		t.Error("the policy has an unsafe word")
	}
	c := b.cookie
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != b.base || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
}

// TestLinkWorksOnce tries a link twice, and a link that is too old.
func TestLinkWorksOnce(t *testing.T) {
	now := time.Now()
	x := newSessions(func() time.Time { return now }, func(error) {})
	code, used := x.newToken()
	if opened, _ := x.exchange(code); opened == nil {
		t.Fatal("the link opens nothing")
	}
	<-used
	late, _ := x.newToken()
	now = now.Add(tokenLife + time.Second)
	for range maxFailures + 1 { // an old link is not a wrong code
		for what, code := range map[string]string{"used": code, "late": late} {
			if opened, old := x.exchange(code); opened != nil || !old {
				t.Errorf("a %s link opens, or is not known as an old one", what)
			}
		}
	}
	for range maxSessions + 1 {
		_, _ = x.newToken()
	}
	if opened, old := x.exchange("wrong"); opened != nil || old || x.failures != 1 {
		t.Errorf("a wrong code is one of %d failures", x.failures)
	}
}

// TestALinkThatWasSent: the address of a page without its session, or with somebody else's, asks at the door and then goes
// to the page.
func TestALinkThatWasSent(t *testing.T) {
	s := serve(t, Options{})
	b := &browser{s: s, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for address, want := range map[string]string{
		"/o/uid:1/bot/one/steps?at=a%2Fb": "o/uid:1/bot/one/steps?at=a%2Fb", "/s/of-somebody-else/runs?group=agent": "runs?group=agent",
		"/": "",
	} {
		_, form, _ := strings.Cut(b.text("GET", address, nil), `name="next" value="`)
		next, _, _ := strings.Cut(form, `"`)
		link, _ := s.Link()
		_, code, _ := strings.Cut(link, "#")
		at := b.send("POST", "/open", url.Values{"code": {code}, "next": {unescaped(next)}}, nil).Header.Get("Location")
		if _, path, _ := strings.Cut(strings.TrimPrefix(at, "/s/"), "/"); path != want || !strings.HasPrefix(at, "/s/") {
			t.Errorf("%s leads to %s, want %s", address, at, want)
		}
	}
	for _, next := range []string{"https://evil.example/", "//evil.example/", "../../x", "%zz", "javascript:alert(1)"} {
		link, _ := s.Link()
		_, code, _ := strings.Cut(link, "#")
		if at := b.send("POST", "/open", url.Values{"code": {code}, "next": {next}}, nil).Header.Get("Location"); !strings.HasPrefix(at, "/s/") || strings.Contains(at, "..") {
			t.Errorf("%s leads to %s", next, at)
		}
	}
}

// TestWrongCodesEndTheConsole tries five wrong codes.
func TestWrongCodesEndTheConsole(t *testing.T) {
	s := serve(t, Options{})
	b := &browser{s: s, client: http.DefaultClient}
	for i := range maxFailures {
		if i > 0 {
			select {
			case err := <-s.failure:
				t.Fatalf("it has ended after %d: %v", i, err)
			default:
			}
		}
		b.send("POST", "/open", url.Values{"code": {fmt.Sprint("wrong", i)}}, nil)
	}
	if err := <-s.failure; !errors.Is(err, errFailures) {
		t.Errorf("it has ended with %v", err)
	}
}

// TestSessionsEnd lets time pass: a page that nobody sees does not keep a session alive.
func TestSessionsEnd(t *testing.T) {
	now := time.Now()
	x := newSessions(func() time.Time { return now }, func(error) {})
	open := func() (*session, *http.Request) {
		code, _ := x.newToken()
		s, _ := x.exchange(code)
		r, _ := http.NewRequest("GET", "/", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: s.secret})
		return s, r
	}
	s, r := open()
	now = now.Add(sessionIdle - time.Second)
	if x.of(r, s.id, false) == nil {
		t.Fatal("the session has ended too early")
	}
	now = now.Add(2 * time.Second)
	if x.of(r, s.id, true) != nil {
		t.Error("a hidden page has kept the session")
	}
	s, r = open()
	for range int(sessionLife/sessionIdle)*2 - 1 {
		if now = now.Add(sessionIdle / 2); x.of(r, s.id, true) == nil {
			t.Fatal("the session has ended while it was used")
		}
	}
	now = now.Add(sessionIdle / 2)
	if x.of(r, s.id, true) != nil {
		t.Error("the session has no end")
	}
	first, r := open()
	for range maxSessions {
		now = now.Add(time.Second)
		open()
	}
	if x.of(r, first.id, true) != nil {
		t.Error("there are more sessions than allowed")
	}
}

// TestReadOnlyHasNoWritingRoutes sends every write to a read-only console.
func TestReadOnlyHasNoWritingRoutes(t *testing.T) {
	s := serve(t, Options{ReadOnly: true})
	b := s.open()
	for what := range acts {
		if r := b.send("POST", b.base+"act/"+what, url.Values{"csrf": {b.csrf}}, nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s is answered %d", what, r.StatusCode)
		}
		if r := b.send("GET", b.base+"ask/"+what, nil, nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("the form of %s is answered %d", what, r.StatusCode)
		}
	}
}

// TestAddressesBeyondLoopback: only loopback addresses are accepted.
func TestAddressesBeyondLoopback(t *testing.T) {
	for listen, fine := range map[string]bool{
		"127.0.0.1:0": true, "127.0.0.2:0": true, "[::1]:0": true, "0.0.0.0:0": false, ":8080": false, "[::]:0": false,
		"192.168.1.2:80": false, "localhost": false, "example.org:80": false,
	} {
		if err := CheckListen(listen, false); (err == nil) != fine {
			t.Errorf("%s: %v", listen, err)
		}
	}
	if err := CheckListen("0.0.0.0:0", true); err != nil {
		t.Errorf("with --insecure-listen: %v", err)
	}
}

// TestOtherAddressesCanBeOpened sends what browsers send to addresses other than 127.0.0.1: to
// those that are not of loopback, no Sec-Fetch-Site.
func TestOtherAddressesCanBeOpened(t *testing.T) {
	type request struct {
		host, origin, site string
		want               int
	}
	const opens, other, misdirected = http.StatusSeeOther, http.StatusForbidden, http.StatusMisdirectedRequest
	for _, c := range []struct {
		o    Options
		link string // the beginning of its link, with PORT
		list []request
	}{
		{Options{Listen: "127.0.0.2:0"}, "http://127.0.0.2:PORT/#", []request{
			{"127.0.0.2:PORT", "http://127.0.0.2:PORT", "same-origin", opens},
			{"127.0.0.2:PORT", "http://127.0.0.2:PORT", "", other},
			{"192.0.2.7:PORT", "http://192.0.2.7:PORT", "same-origin", misdirected},
		}},
		{Options{PortSeen: 80}, "http://127.0.0.1:80/#", []request{
			{"127.0.0.1", "http://127.0.0.1", "same-origin", opens}, // browsers leave out this port
			{"127.0.0.1:PORT", "http://127.0.0.1:PORT", "same-origin", opens},
			{"evil.example", "http://evil.example", "same-origin", misdirected},
		}},
		{Options{Listen: "0.0.0.0:0", Insecure: true}, "http://127.0.0.1:PORT/#", []request{
			{"192.0.2.7:PORT", "http://192.0.2.7:PORT", "", opens},
			{"192.0.2.7:PORT", "http://192.0.2.7:PORT", "same-origin", opens},
			{"192.0.2.7:PORT", "http://192.0.2.7:PORT", "cross-site", other},
			{"192.0.2.7:PORT", "http://192.0.2.8:PORT", "", other},
			{"192.0.2.7:PORT", "", "", other},
			{"192.0.2.7:PORT", "null", "", other},
			{"192.0.2.7:1", "http://192.0.2.7:1", "", misdirected},
			{"evil.example:PORT", "http://evil.example:PORT", "", misdirected},
			{"127.0.0.1:PORT", "http://127.0.0.1:PORT", "same-origin", opens},
			{"127.0.0.1:PORT", "http://127.0.0.1:PORT", "", other},
		}},
		{Options{Listen: ":0", Insecure: true}, "http://127.0.0.1:PORT/#", []request{
			{"[2001:db8::7]:PORT", "http://[2001:db8::7]:PORT", "", opens},
		}},
	} {
		s := serve(t, c.o)
		_, port, _ := net.SplitHostPort(s.address)
		with := func(text string) string { return strings.ReplaceAll(text, "PORT", port) }
		for _, q := range c.list {
			link, _ := s.Link()
			_, code, _ := strings.Cut(link, "#")
			if !strings.HasPrefix(link, with(c.link)) {
				t.Errorf("%s has the link %s", c.o.Listen, link)
			}
			r := httptest.NewRequest("POST", "/open", strings.NewReader(url.Values{"code": {code}}.Encode()))
			r.Host = with(q.host)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for name, value := range map[string]string{"Origin": with(q.origin), "Sec-Fetch-Site": q.site} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, r)
			if w.Code != q.want {
				t.Errorf("%s is answered %d to %+v", c.o.Listen, w.Code, q)
			}
		}
	}
}

// TestStrangersConnectionsAreClosed: the console closes another user's connection before it reads a byte.
func TestStrangersConnectionsAreClosed(t *testing.T) {
	s := serve(t, Options{admit: func(net.Conn) error { return errors.New("another user") }})
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := bufio.NewReader(c).ReadByte(); err == nil {
		t.Error("a stranger is answered")
	}
}

// TestConnectionsAreLimited opens the maximum number of connections, and one more.
func TestConnectionsAreLimited(t *testing.T) {
	s := serve(t, Options{})
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range maxConnections {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	// They are accepted in order, so the next one exceeds the limit.
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("one connection too many is kept")
	}
	_ = open[0].Close()
	open = open[1:]
	for answered := false; !answered; { // there is room again when the console has noticed that one was closed
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", s.address)
		_, err = c.Read(make([]byte, 1))
		answered = err == nil
		_ = c.Close()
	}
}
