package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
)

// Material writes the text for states: English-like prose, and lines like those of
// programs, logs and listings. The text is generated, so that everybody measures the
// same, and no user's files are read. Words are as frequent as in real text (Zipf's law),
// and identifiers repeat within a file. Therefore the text compresses about as well as
// real text.
type Material struct {
	random *rand.Rand
	words  []string
	sums   []uint64 // the cumulative weights of the words
	files  [][]string
}

// NewMaterial returns material. The same seed gives the same text.
func NewMaterial(seed uint64) *Material {
	m := &Material{random: rand.New(rand.NewPCG(seed, 0x636b7074))}
	m.words = strings.Fields(commonWords)
	for len(m.words) < 4000 {
		m.words = append(m.words, m.rareWord())
	}
	total := uint64(0)
	for i := range m.words {
		total += 1 << 32 / uint64(i+3)
		m.sums = append(m.sums, total)
	}
	for range 24 {
		m.files = append(m.files, m.File(60+m.N(120)))
	}
	return m
}

// N returns a random number from 0 to below-1.
func (m *Material) N(below int) int { return m.random.IntN(below) }

func pick[T any](m *Material, list []T) T { return list[m.N(len(list))] }

// rareWord returns a word that is in no dictionary, but looks like a real one.
func (m *Material) rareWord() string {
	var b strings.Builder
	for range 2 + m.N(3) {
		b.WriteString(pick(m, strings.Fields(syllables)))
	}
	return b.String()
}

// Word returns a word. Frequent words are chosen more often.
func (m *Material) Word() string {
	at := m.random.Uint64N(m.sums[len(m.sums)-1])
	return m.words[sort.Search(len(m.sums), func(i int) bool { return m.sums[i] > at })]
}

// sentence returns a sentence that looks like English to a compressor.
func (m *Material) sentence() string {
	words := make([]string, 5+m.N(16))
	for i := range words {
		words[i] = m.Word()
	}
	words[0] = strings.ToUpper(words[0][:1]) + words[0][1:]
	if at := m.N(len(words)); at > 2 && at < len(words)-1 {
		words[at] += ","
	}
	return strings.Join(words, " ") + pick(m, []string{".", ".", ".", ":", "?"})
}

// Name returns an identifier.
func (m *Material) Name() string {
	a, b := m.Word(), m.Word()
	return a + strings.ToUpper(b[:1]) + b[1:]
}

// File returns program text: a dozen names, and lines that use them.
func (m *Material) File(lines int) []string {
	names := make([]string, 14)
	for i := range names {
		names[i] = m.Name()
	}
	name := func() string { return pick(m, names) }
	list := make([]string, 0, lines)
	for len(list) < lines {
		switch m.N(9) {
		case 0:
			list = append(list, "", "// "+name()+" "+m.sentence(),
				fmt.Sprintf("func (s *%s) %s(ctx context.Context, %s string) error {", name(), name(), name()))
		case 1:
			list = append(list, fmt.Sprintf("\tif err := s.%s(ctx, %s); err != nil {", name(), name()),
				fmt.Sprintf("\t\treturn fmt.Errorf(%q, err)", m.Word()+" "+m.Word()+": %w"), "\t}")
		case 2:
			list = append(list, fmt.Sprintf("\tfor _, %s := range %s.%s {", name(), name(), name()),
				fmt.Sprintf("\t\t%s = append(%s, %s[%d])", name(), name(), name(), m.N(64)), "\t}")
		case 3:
			list = append(list, "\t// "+m.sentence())
		case 4:
			list = append(list, "\treturn nil", "}")
		default:
			list = append(list, fmt.Sprintf("\t%s := %s.%s(%s, %d)", name(), name(), name(), name(), m.N(1000)))
		}
	}
	return list
}

// passage returns about this many bytes of the content of a message.
func (m *Material) passage(bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		switch m.N(5) {
		case 0, 1:
			for range 1 + m.N(4) {
				b.WriteString(m.sentence() + " ")
			}
		case 2, 3:
			m.excerpt(&b)
		case 4:
			m.listing(&b)
		}
		b.WriteString("\n\n")
	}
	return cut(b.String(), bytes)
}

// excerpt writes a part of a file with line numbers, as tools show it. Files are read
// again and again, and change in between.
func (m *Material) excerpt(b *strings.Builder) {
	k := m.N(len(m.files))
	if m.N(3) == 0 {
		m.files[k] = m.File(60 + m.N(120))
	}
	file := m.files[k]
	from := m.N(len(file) - 20)
	for i, line := range file[from:min(len(file), from+10+m.N(30))] {
		fmt.Fprintf(b, "%6d\t%s\n", from+i+1, line)
	}
}

// listing writes the output of a build or a test.
func (m *Material) listing(b *strings.Builder) {
	for range 4 + m.N(16) {
		fmt.Fprintf(b, "%s  %s/%s_test.go:%d: %s %s (%d.%02ds)\n", pick(m, []string{"ok  ", "FAIL", "--- ", "warn"}), m.Word(),
			m.Word(), m.N(900), m.Word(), m.Word(), m.N(9), m.N(100))
	}
}

// cut shortens text to at most n bytes. All of the text is ASCII.
func cut(text string, n int) string { return text[:min(n, len(text))] }

// Message returns one message of a conversation, as JSON of about this many bytes.
func (m *Material) Message(size int) []byte {
	role := pick(m, []string{"user", "assistant", "assistant", "tool", "tool", "tool"})
	content := m.passage(max(20, size-100-size/20)) // escapes use the rest
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"role":%q,"id":"msg_%016x","content":`, role, m.random.Uint64())
	WriteString(&b, content)
	b.WriteByte('}')
	return b.Bytes()
}

// WriteString writes a JSON string as most languages do: without escapes for HTML.
func WriteString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // writing a string cannot fail
	b.Truncate(b.Len() - 1)
}

const syllables = `an ar ba bi ca ce co da de di do ed el en er fa fi for ga ge gen hi in ing ion is it ka la le
	li lo ma me ment mi mo na ne ni no nor on or pa per pi po pro qua ra re ri ro sa se si so sta sub ta te ter ti
	tion to tra tri un ur va ve vi wa we`

// commonWords are sorted approximately by frequency.
const commonWords = `the of and to in a is that for it was on are as with be by at this not or from have has an
	but they we you which can if will all there their one more when so no what up out about into than its only other
	new some could time these two may then do first any my now such like over also after must through here how our
	well me even back where should because very each just those people too good state file run error value test line
	name call save step data result type set list read write key user tool function return string number change find
	open check start end next last old path log agent model message token request answer server client process table
	row index query size byte page block cache memory disk time limit count build code package module method field
	object array map record version update delete insert create remove restore resume failed passed expected actual
	missing invalid unknown empty found before between under again still never always every both same different
	large small long short high low true false null zero default option setting config note see look make take use
	need want show keep work think know give tell ask help try move turn point part place case fact problem question
	reason way day week year hour minute second early late early near far left right`
