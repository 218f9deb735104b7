package drift

import "strings"

// The limits of the part of a command line that is read.
const (
	maxCommandLine = 16 << 10
	maxCommands    = 32
	maxCommandArgs = 64
)

// splitCommands splits a command line into its commands, and these into words. It handles
// quotes, operators and comments, and skips here-documents. It is not a complete shell. A
// mistake only assigns a call to the wrong kind.
func splitCommands(line string) (commands [][]string) {
	c := &cutter{rest: line[:min(len(line), maxCommandLine)]}
	for len(commands) < maxCommands && c.next() {
		if command := withoutPrefix(c.words); len(command) > 0 {
			commands = append(commands, command)
		}
	}
	return commands
}

// cutter reads one command after another.
type cutter struct {
	rest  string
	words []string
	ends  []string // the end marks of here-documents that begin with the next line
}

// next reads a command, and returns whether there was one.
func (c *cutter) next() bool {
	c.words = nil
	for c.rest != "" {
		switch ch := c.rest[0]; {
		case ch == '\n':
			c.rest = c.rest[1:]
			c.skipDocuments()
			if len(c.words) > 0 {
				return true
			}
		case ch == ';' || ch == '|' || ch == '&' || ch == '(' || ch == ')':
			c.rest = c.rest[1:]
			if len(c.words) > 0 {
				return true
			}
		case ch == ' ' || ch == '\t' || ch == '\r':
			c.rest = c.rest[1:]
		case strings.HasPrefix(c.rest, "\\\n"):
			c.rest = c.rest[2:]
		case ch == '#':
			c.rest = c.rest[lineEnd(c.rest):]
		case strings.HasPrefix(c.rest, "<<") && !strings.HasPrefix(c.rest, "<<<"):
			c.rest = strings.TrimLeft(c.rest[2:], "- \t")
			c.ends = append(c.ends, c.word())
		case ch == '<' || ch == '>':
			c.rest = strings.TrimLeft(c.rest[1:], ">&| \t")
			c.word()
		default:
			word := c.word()
			if n := len(word); n > 0 && strings.HasPrefix(c.rest, ">") && strings.Trim(word, "0123456789") == "" {
				continue // as in 2>file
			}
			if len(c.words) < maxCommandArgs {
				c.words = append(c.words, word)
			}
		}
	}
	return len(c.words) > 0
}

// word reads a word up to white space or an operator, without its quotes.
func (c *cutter) word() string {
	var b strings.Builder
	i := 0
	for i < len(c.rest) && !strings.ContainsRune(" \t\r\n;|&()<>", rune(c.rest[i])) {
		switch ch := c.rest[i]; ch {
		case '\'', '"':
			n := strings.IndexByte(c.rest[i+1:], ch)
			if n < 0 {
				n = len(c.rest) - i - 1
			}
			b.WriteString(c.rest[i+1 : i+1+n])
			i = min(i+n+2, len(c.rest))
			continue
		case '\\':
			i++
			if i < len(c.rest) {
				b.WriteByte(c.rest[i])
			}
		default:
			b.WriteByte(ch)
		}
		i++
	}
	c.rest = c.rest[min(max(i, 1), len(c.rest)):]
	return b.String()
}

// skipDocuments skips the here-documents that begin at a new line.
func (c *cutter) skipDocuments() {
	for _, end := range c.ends {
		for c.rest != "" {
			n := lineEnd(c.rest)
			line := c.rest[:n]
			c.rest = strings.TrimPrefix(c.rest[n:], "\n")
			if strings.TrimSpace(line) == end {
				break
			}
		}
	}
	c.ends = nil
}

func lineEnd(s string) int {
	if n := strings.IndexByte(s, '\n'); n >= 0 {
		return n
	}
	return len(s)
}

// before lists commands that run the command after them.
var before = map[string]bool{"sudo": true, "env": true, "nohup": true, "time": true, "nice": true, "exec": true,
	"command": true, "timeout": true, "if": true,
	"while": true, "!": true, "then": true, "do": true, "else": true, "xargs": true}

// withoutPrefix removes the words before a command: variables, sudo, timeout 60.
func withoutPrefix(words []string) []string {
	for len(words) > 1 {
		w := words[0]
		name, _, assigns := strings.Cut(w, "=")
		switch {
		case assigns && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "":
		case before[w]:
			for len(words) > 2 && (strings.HasPrefix(words[1], "-") || w == "timeout" && strings.Trim(words[1], "0123456789.smhd") == "") {
				words = words[1:]
			}
		default:
			return words
		}
		words = words[1:]
	}
	return words
}
