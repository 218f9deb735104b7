package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
)

// conversation is the state of an agent that talks: a few counters in front, and messages, which
// are added and can be removed.
type conversation struct {
	m        *measure.Material
	step     int
	tokens   int
	messages [][]byte
	bytes    int // of all messages, with the separators between them
}

func newConversation(m *measure.Material) *conversation { return &conversation{m: m} }

// say adds one message of about the given number of bytes.
func (c *conversation) say(size int) {
	message := c.m.Message(size)
	c.messages = append(c.messages, message)
	c.bytes += len(message) + 1
	c.tokens += len(message) / 4
}

func (c *conversation) forget(n int) {
	for _, message := range c.messages[:n] {
		c.bytes -= len(message) + 1
	}
	c.messages = c.messages[n:]
}

// state returns the whole state as JSON.
func (c *conversation) state() []byte {
	c.step++
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.step) * 7 * time.Second)
	b := bytes.NewBuffer(make([]byte, 0, c.bytes+256))
	fmt.Fprintf(b, `{"step":%d,"updated_at":%q,"usage":{"input_tokens":%d,"output_tokens":%d},"messages":[`, c.step,
		at.Format(time.RFC3339), c.tokens, c.tokens/7)
	b.Write(bytes.Join(c.messages, []byte(",")))
	b.WriteString(`]}`)
	return b.Bytes()
}

// slide adds a message and forgets the oldest, so that the state has about the same size each time.
func (c *conversation) slide(size int64) []byte {
	one := int(min(4000, max(200, size/32)))
	c.say(one)
	for int64(c.bytes+one) < size {
		c.say(one)
	}
	for int64(c.bytes) > size && len(c.messages) > 1 {
		c.forget(1)
	}
	return c.state()
}

// growth describes how a state changes from save to save. make returns a function that returns the
// next state at each call. There are as many states as saves, and the largest has about the given
// size.
type growth struct {
	name, what string
	make       func(m *measure.Material, saves int, size int64) func() []byte
}

// partOf is the size of the states of the histories that do not only grow, as a part of the size of
// the history that only grows.
const partOf = 0.4

var growths = []growth{
	{"chat", "a conversation of which nothing is forgotten", chatHistory},
	{"compacting", "a conversation of which a quarter and a summary stay whenever it is too long", compactingHistory},
	{"edited", "20 files, of which one is edited each time", editedHistory},
}

func chatHistory(m *measure.Material, saves int, size int64) func() []byte {
	c := newConversation(m)
	return func() []byte {
		c.grow(saves, size)
		return c.state()
	}
}

// grow adds the message of the next save, of half to one and a half times the average, so that
// messages differ. After the given number of saves, the messages reach the given size.
func (c *conversation) grow(saves int, size int64) {
	average := max(40, int(size)/saves)
	c.say(average/2 + c.m.N(average))
}

func compactingHistory(m *measure.Material, saves int, size int64) func() []byte {
	c := newConversation(m)
	most := int(float64(size) * partOf)
	return func() []byte {
		c.grow(saves, size)
		if c.bytes > most && len(c.messages) > 4 {
			c.forget(len(c.messages) * 3 / 4)
			summary := c.m.Message(1500)
			c.messages = append([][]byte{summary}, c.messages...)
			c.bytes += len(summary) + 1
		}
		return c.state()
	}
}

const editedFiles = 20

func editedHistory(m *measure.Material, _ int, size int64) func() []byte {
	e := &editing{m: m}
	each := int(float64(size) * partOf / editedFiles)
	for len(e.files) < editedFiles {
		var lines []string
		for have := 0; have < each; {
			part := m.File(40)
			have += len(strings.Join(part, "\n"))
			lines = append(lines, part...)
		}
		e.files = append(e.files, lines)
		e.names = append(e.names, m.Word()+"/"+m.Name()+".go")
		e.written = append(e.written, nil)
	}
	return e.next
}

// editing is a state of files that are edited.
type editing struct {
	m       *measure.Material
	step    int
	names   []string
	files   [][]string
	written [][]byte // as JSON, nil if the file must be written again
}

// next replaces a few lines of one file.
func (e *editing) next() []byte {
	e.step++
	k := e.m.N(len(e.files))
	file := e.files[k]
	from := e.m.N(max(1, len(file)-10))
	to := min(len(file), from+e.m.N(10))
	fresh := e.m.File(1 + e.m.N(10))
	e.files[k] = append(append(append([]string{}, file[:from]...), fresh...), file[to:]...)
	e.written[k] = nil
	return e.state(k)
}

func (e *editing) state(last int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"step":%d,"last_edit":%q,"files":{`, e.step, e.names[last])
	for i, lines := range e.files {
		if i > 0 {
			b.WriteByte(',')
		}
		if e.written[i] == nil {
			var one bytes.Buffer
			measure.WriteString(&one, fmt.Sprintf("%d/%s", i, e.names[i]))
			one.WriteByte(':')
			measure.WriteString(&one, strings.Join(lines, "\n"))
			e.written[i] = one.Bytes()
		}
		b.Write(e.written[i])
	}
	b.WriteString(`}}`)
	return b.Bytes()
}
