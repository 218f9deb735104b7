package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Limits of sessions.
const (
	maxSessions = 4
	maxFailures = 5 // wrong codes that end the console
	tokenLife   = time.Minute
	sessionLife = 8 * time.Hour
	sessionIdle = 30 * time.Minute
)

// done is what the daemon has confirmed, as a sentence, and the page to show next.
type done struct{ said, page string }

// errFailures ends the console.
var errFailures = errors.New("the console has ended: five wrong codes were tried to open it")

// cookieName is the name of the cookie. The cookie is limited to the session's path,
// because cookies ignore ports: a cookie for all of 127.0.0.1 would also be sent to a
// server of another user on another port.
const cookieName = "ckptsidecar"

// sessions are the open sessions, and the unused links.
type sessions struct {
	now      func() time.Time
	tooMany  func(error) // called after too many wrong codes
	mu       sync.Mutex
	open     []*session
	tokens   []token
	old      [][sha256.Size]byte // hashes of links that are used or replaced, the newest last
	failures int
}

// token is an unused link. Only its hash is kept.
type token struct {
	sum  [sha256.Size]byte
	ends time.Time
	used chan struct{}
}

// session is one browser that has opened the console.
type session struct {
	id     string // in the path
	secret string // in the cookie
	csrf   string // in the forms
	began  time.Time
	seen   time.Time // when a person last did something, or a page was last in view
	mu     sync.Mutex
	notes  []string // messages for the next page

	acting map[string]chan struct{} // by the text of a form that is being acted on: closed at its end
	did    []did                    // the newest completed forms
}

// did is a completed form, and the daemon's answer.
type did struct {
	form   string
	result done
}

// maxDid is how many forms a session remembers.
const maxDid = 32

func newSessions(now func() time.Time, tooMany func(error)) *sessions {
	return &sessions{now: now, tooMany: tooMany}
}

// random returns n random bytes as text that is valid in a URL.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// newKey returns an idempotency key that can also be the id of a checkpoint: a UUID of
// version 7.
func newKey(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	ms := now.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (s *sessions) newToken() (text string, used <-chan struct{}) {
	text = random(32)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := token{sha256.Sum256([]byte(text)), s.now().Add(tokenLife), make(chan struct{})}
	if s.tokens = append(s.tokens, t); len(s.tokens) > maxSessions {
		s.retire(0)
	}
	return text, t.used
}

// maxOld is how many old links are known.
const maxOld = 64

// retire makes a link an old one.
func (s *sessions) retire(i int) {
	if s.old = append(s.old, s.tokens[i].sum); len(s.old) > maxOld {
		s.old = s.old[1:]
	}
	s.tokens = append(s.tokens[:i], s.tokens[i+1:]...)
}

// exchange exchanges a token for a session, once. If there are more than four sessions,
// the one that was idle longest ends. Whoever has an old link has not guessed it: that is no wrong code.
func (s *sessions) exchange(text string) (x *session, old bool) {
	sum := sha256.Sum256([]byte(text))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	found := -1
	for i := range s.tokens { // always all of them, so that the time reveals nothing about the tokens
		if subtle.ConstantTimeCompare(s.tokens[i].sum[:], sum[:]) == 1 {
			found = i
		}
	}
	for i := range s.old {
		old = subtle.ConstantTimeCompare(s.old[i][:], sum[:]) == 1 || old
	}
	if found >= 0 && now.After(s.tokens[found].ends) {
		s.retire(found)
		return nil, true
	}
	if found < 0 {
		if !old {
			s.failures++
		}
		if s.failures >= maxFailures {
			s.tooMany(errFailures)
		}
		return nil, old
	}
	close(s.tokens[found].used)
	s.retire(found)
	made := &session{id: random(16), secret: random(32), csrf: random(32), began: now, seen: now}
	s.drop(now)
	if len(s.open) >= maxSessions {
		oldest := 0
		for i := range s.open {
			if s.open[i].seen.Before(s.open[oldest].seen) {
				oldest = i
			}
		}
		s.open = append(s.open[:oldest], s.open[oldest+1:]...)
	}
	s.open = append(s.open, made)
	return made, false
}

// drop removes sessions that have ended.
func (s *sessions) drop(now time.Time) {
	kept := s.open[:0]
	for _, x := range s.open {
		if now.Sub(x.began) < sessionLife && now.Sub(x.seen) < sessionIdle {
			kept = append(kept, x)
		}
	}
	s.open = kept
}

// of returns the session of a request. Both the path and the cookie must be right.
// Requests of a page that nobody sees do not extend the session.
func (s *sessions) of(r *http.Request, id string, inView bool) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.drop(now)
	for _, x := range s.open {
		if same(x.id, id) && same(x.secret, cookie.Value) {
			if inView {
				x.seen = now
			}
			return x
		}
	}
	return nil
}

// close ends a session.
func (s *sessions) close(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.open {
		if s.open[i] == x {
			s.open = append(s.open[:i], s.open[i+1:]...)
			return
		}
	}
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// once performs the action of a form. What the form saw may no longer exist after the action.
// Therefore the session remembers the first answer for the same form.
func (x *session) once(what string, q url.Values, do func() (done, error)) (done, error) {
	form := formText(what, q)
	result, was, end := x.begin(form)
	if was {
		return result, nil
	}
	defer end()
	result, err := do()
	if err != nil || q.Get("key") == "" {
		return result, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.did = append(x.did, did{form, result}); len(x.did) > maxDid {
		x.did = x.did[1:]
	}
	return result, nil
}

// begin returns the first answer for a form. If there is none, nobody else acts on the form until
// the caller calls end. Other forms do not wait.
func (x *session) begin(form string) (result done, was bool, end func()) {
	for {
		x.mu.Lock()
		if i := slices.IndexFunc(x.did, func(d did) bool { return d.form == form }); i >= 0 {
			result = x.did[i].result
			x.mu.Unlock()
			return result, true, nil
		}
		acting := x.acting[form]
		if acting == nil {
			break
		}
		x.mu.Unlock()
		<-acting
	}
	defer x.mu.Unlock()
	if x.acting == nil {
		x.acting = map[string]chan struct{}{}
	}
	over := make(chan struct{})
	x.acting[form] = over
	return done{}, false, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.acting, form)
		close(over)
	}
}

// formText identifies a form that was filled in.
func formText(what string, q url.Values) string {
	same := maps.Clone(q)
	for _, name := range []string{"csrf", "again", "yes"} {
		same.Del(name)
	}
	return what + "?" + same.Encode()
}

// note keeps a sentence for the next page of the session.
func (x *session) note(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.notes = append(x.notes, text)
}

// takeNotes returns the noted sentences and removes them.
func (x *session) takeNotes() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	notes := x.notes
	x.notes = nil
	return notes
}

// base returns the address of the session's pages.
func (x *session) base() string { return "/s/" + x.id + "/" }
