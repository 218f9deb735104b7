package files

import "strings"

// matcher is a compiled pattern. Its time is at most proportional to the length of the
// pattern times that of the text, whatever they contain.
type matcher struct {
	tokens   []token
	pathname bool // "*", "?" and sets do not match a slash
}

type tokenKind byte

const (
	oneByte   tokenKind = iota // this byte
	oneOfSet                   // a byte of the set
	anyByte                    // "?"
	star                       // any bytes except slashes
	starSlash                  // any bytes
	folders                    // "**/": nothing, or any bytes followed by a slash
)

type token struct {
	kind tokenKind
	b    byte
	set  *[256]bool
}

// compile reads a pattern. impossible is true if nothing can match it.
func compile(p string, pathname bool) (m *matcher, impossible bool) {
	m = &matcher{pathname: pathname}
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
			if i == len(p) {
				return nil, true
			}
			m.add(token{kind: oneByte, b: p[i]})
		case '?':
			m.add(token{kind: anyByte})
		case '*':
			from := i
			for i+1 < len(p) && p[i+1] == '*' {
				i++
			}
			i = m.addStar(p, from, i)
		case '[':
			set, end, ok := parseSet(p, i)
			if !ok {
				return nil, true
			}
			if pathname {
				set['/'] = false
			}
			m.add(token{kind: oneOfSet, set: set})
			i = end
		default:
			m.add(token{kind: oneByte, b: p[i]})
		}
	}
	return m, false
}

func (m *matcher) add(t token) { m.tokens = append(m.tokens, t) }

// addStar adds the token for the stars from p[from] to p[last], and returns the index
// of the last byte that it has used.
func (m *matcher) addStar(p string, from, last int) int {
	kind := star
	switch {
	case !m.pathname:
		kind = starSlash
	case last == from:
	case from > 0 && p[from-1] != '/': // "a**" means the same as "a*"
	case last+1 == len(p):
		kind = starSlash
	case p[last+1] == '/':
		m.add(token{kind: folders})
		return last + 1
	case strings.HasPrefix(p[last+1:], `\/`):
		m.add(token{kind: starSlash})
		return last
	}
	m.add(token{kind: kind})
	return last
}

// parseSet reads a set such as [a-z] at p[at], and returns the index of its end.
func parseSet(p string, at int) (set *[256]bool, end int, ok bool) {
	set = new([256]bool)
	i := at + 1
	get := func() (byte, bool) {
		if i >= len(p) {
			return 0, false
		}
		return p[i], true
	}
	c, ok := get()
	negated := ok && (c == '!' || c == '^')
	if negated {
		i++
	}
	var before byte // the last plain byte: a range can begin with it
	for first := true; ; first = false {
		c, ok := get()
		switch {
		case !ok:
			return nil, 0, false
		case c == ']' && !first:
			if negated {
				for b := range set {
					set[b] = !set[b]
				}
			}
			return set, i, true
		case c == '\\':
			i++
			if c, ok = get(); !ok {
				return nil, 0, false
			}
			set[c], before = true, c
		case c == '-' && before != 0 && i+1 < len(p) && p[i+1] != ']':
			i++
			to := p[i]
			if to == '\\' {
				i++
				if to, ok = get(); !ok {
					return nil, 0, false
				}
			}
			for b := int(before); b <= int(to); b++ {
				set[b] = true
			}
			before = 0
		case c == '[' && i+1 < len(p) && p[i+1] == ':':
			close := strings.IndexByte(p[i+2:], ']')
			if close < 0 {
				return nil, 0, false
			}
			name := p[i+2 : i+2+close]
			class, isClass := strings.CutSuffix(name, ":")
			if !isClass {
				set['['], before = true, '['
				break
			}
			in, known := classes[class]
			if !known {
				return nil, 0, false
			}
			for b := range 128 {
				if in(byte(b)) {
					set[b] = true
				}
			}
			i += 2 + close
			before = 0
		default:
			set[c], before = true, c
		}
		i++
	}
}

func lower(b byte) bool { return b >= 'a' && b <= 'z' }
func upper(b byte) bool { return b >= 'A' && b <= 'Z' }
func alpha(b byte) bool { return lower(b) || upper(b) }
func digit(b byte) bool { return b >= '0' && b <= '9' }
func graph(b byte) bool { return b > ' ' && b < 0x7f }

// classes are the named sets, in ASCII.
var classes = map[string]func(byte) bool{
	"alnum": func(b byte) bool { return alpha(b) || digit(b) },
	"alpha": alpha,
	"blank": func(b byte) bool { return b == ' ' || b == '\t' },
	"cntrl": func(b byte) bool { return b < ' ' || b == 0x7f },
	"digit": digit,
	"graph": graph,
	"lower": lower,
	"print": func(b byte) bool { return b == ' ' || graph(b) },
	"punct": func(b byte) bool { return graph(b) && !alpha(b) && !digit(b) },
	"space": func(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' },
	"upper": upper,
	"xdigit": func(b byte) bool {
		return digit(b) || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
	},
}

// matches reports whether the pattern matches the whole text. It follows all paths
// through the pattern at once, so that no pattern takes long.
func (m *matcher) matches(text string) bool {
	n := len(m.tokens)
	now, next := make([]bool, n+1), make([]bool, n+1)
	m.enter(now, 0)
	for i := range len(text) {
		clear(next)
		alive := false
		for at, here := range now[:n] {
			if here && m.step(next, at, text[i]) {
				alive = true
			}
		}
		if !alive {
			return false
		}
		now, next = next, now
	}
	return now[n]
}

// enter marks a place in the pattern as reached, and the places after it that need no
// byte.
func (m *matcher) enter(places []bool, at int) {
	for ; !places[at]; at++ {
		places[at] = true
		if at == len(m.tokens) {
			return
		}
		if k := m.tokens[at].kind; k != star && k != starSlash && k != folders {
			return
		}
	}
}

// step marks the places that a byte leads to from a place, and reports whether there
// are any.
func (m *matcher) step(next []bool, at int, b byte) bool {
	switch t := &m.tokens[at]; t.kind {
	case oneByte:
		if b != t.b {
			return false
		}
	case anyByte:
		if m.pathname && b == '/' {
			return false
		}
	case oneOfSet:
		if !t.set[b] {
			return false
		}
	case star:
		if b != '/' {
			m.enter(next, at)
			return true
		}
		return false
	case starSlash:
		m.enter(next, at)
		return true
	case folders:
		// Inside the name of a folder nothing else may begin: "**/" ends with a slash.
		next[at] = true
		if b != '/' {
			return true
		}
	}
	m.enter(next, at+1)
	return true
}
