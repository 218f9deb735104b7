package ledger

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// act is a row of the audit log before it is written to disk. Zero stands for NULL, if a column can
// be NULL; only a save has a size, which can be 0.
type act struct {
	n       int64
	at      int64 // milliseconds since 1970
	who     string
	pid     int
	action  string
	place   place
	outcome string // "" means done
	retries int
	save    *SaveFacts
	gone    int64 // the row of the save whose checkpoint was removed
	why     string
	removed []removed // of a save, until they are moved to gone or more: what was removed because of it
	subject []byte    // the 16 bytes of a UUID
	sha256  []byte
	texts   texts
	salt    []byte // of the texts
	beside  []byte
	more    string
	hash    []byte
}

// removed is a checkpoint that was removed.
type removed struct {
	n   int64 // the row of its save
	why string
}

// texts are the texts of an act that are stored beside the log, "" if absent.
type texts struct{ subject, reason, detail string }

// place says what an act is about. run is the name of all lives of a run, and life which of them.
type place struct {
	owner, agent, run string
	life              int64
}

// SaveFacts are the facts about a checkpoint that the row of its save holds.
type SaveFacts struct {
	Kind    ckpt.Kind
	Seq     int64
	Parent  ckpt.Ref // the checkpoint that it was made from
	ParentN int64    // the row of the parent's save; 0 if that row is gone
	Size    int64
	Stored  int64
	Sha256  string // in hexadecimal
	Rest    []byte // CheckpointRow.rest
	Labels  string // LabelsHash
	Pinned  bool
	Suspect bool
}

// kinds maps the numbers in acts to kinds.
var kinds = [...]ckpt.Kind{1: ckpt.KindRoutine, 2: ckpt.KindPreOperation, 3: ckpt.KindRecovery}

func kindNumber(kind ckpt.Kind) int64 {
	for number, k := range kinds {
		if k == kind && number > 0 {
			return int64(number)
		}
	}
	return 0
}

// UUIDBytes returns a UUID as it is stored. It returns false for any other text, also for a UUID
// that is not in the form that the views write.
func UUIDBytes(text string) ([]byte, bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return nil, false
	}
	id := make([]byte, 0, 16)
	for i := 0; i < len(text); i += 2 {
		if text[i] == '-' {
			i++
		}
		high, low := strings.IndexByte(lowerHex, text[i]), strings.IndexByte(lowerHex, text[i+1])
		if high < 0 || low < 0 {
			return nil, false
		}
		id = append(id, byte(high<<4|low))
	}
	return id, true
}

const lowerHex = "0123456789abcdef"

// causedByOwner says whether the owner caused a row that is about them, and not an administrator.
func (a *act) causedByOwner() bool {
	return a.place.owner != "" && (a.who == a.place.owner || a.who == Daemon)
}

// newAct makes the row for an entry.
func (tx *Tx) newAct(e *AuditEntry) (act, error) {
	life, err := tx.lifeOf(e)
	if err != nil {
		return act{}, err
	}
	a := act{n: tx.Head.N + 1, at: tx.Now.UnixMilli(), who: e.Who, pid: e.PID, action: e.Action, place: place{e.Owner, e.Agent, ckpt.BaseRun(e.Run), life},
		retries: tx.Retries, save: e.Save, gone: e.gone, why: shortWhy(e.why)}
	if e.Outcome != OutcomeDone {
		a.outcome = e.Outcome
	}
	var isID bool
	if a.subject, isID = UUIDBytes(e.Subject); !isID {
		a.texts.subject = e.Subject
	}
	a.texts.reason = e.Reason
	if len(e.Detail) > 0 {
		text, err := json.Marshal(e.Detail)
		if err != nil {
			return a, err
		}
		a.texts.detail = string(text)
	}
	if e.Save == nil {
		return a, nil
	}
	a.sha256, err = hex.DecodeString(e.Save.Sha256)
	return a, err
}

// seal derives the remaining columns of an act that no longer changes, and its hash, which includes
// the hash of the row before.
func (a *act) seal(key, before string) {
	if len(a.removed) == 1 {
		a.gone, a.why, a.removed = a.removed[0].n, shortWhy(a.removed[0].why), nil
	}
	a.more = a.moreText()
	buffer := make([]byte, 0, 1024)
	if a.texts != (texts{}) {
		a.salt = make([]byte, 16)
		_, _ = rand.Read(a.salt) // it never fails
		a.beside = sum(a.texts.appendInput(buffer, a.salt))
	}
	a.hash = sum(a.appendInput(buffer, key, before))
}

// shortWhy is a reason as it is stored: a number N for not among the newest N routine checkpoints, which nearly every save has.
func shortWhy(why string) string {
	most, among := strings.CutPrefix(why, "not among the newest ")
	most, routine := strings.CutSuffix(most, " routine checkpoints")
	if among && routine {
		return most
	}
	return why
}

func sum(input []byte) []byte {
	hash := sha256.Sum256(input)
	return hash[:]
}

// appendInput appends the input that audit_texts has.
func (t *texts) appendInput(b, salt []byte) []byte {
	b = append(b, `["`...)
	b = append(hex.AppendEncode(b, salt), '"')
	for _, text := range [...]string{t.subject, t.reason, t.detail} {
		b = appendText(append(b, ','), text)
	}
	return append(b, ']')
}

// appendInput appends the input that audit_chain has.
func (a *act) appendInput(b []byte, key, before string) []byte {
	b = strconv.AppendInt(append(b, '['), a.n, 10)
	b = strconv.AppendInt(append(b, ','), a.at, 10)
	b = appendQuoted(append(b, ','), a.who)
	b = strconv.AppendInt(append(b, ','), int64(a.pid), 10)
	b = appendQuoted(append(b, ','), a.action)
	if a.place == (place{}) {
		b = append(b, ",null,null,null,null"...)
	} else {
		for _, name := range [...]string{a.place.owner, a.place.agent, a.place.run} {
			b = appendQuoted(append(b, ','), name)
		}
		b = strconv.AppendInt(append(b, ','), a.place.life, 10)
	}
	b = appendText(append(b, ','), a.outcome)
	b = appendNumber(append(b, ','), int64(a.retries))
	if s := a.save; s == nil {
		b = append(b, ",null,null,null,null,null"...)
	} else {
		b = appendNumber(append(b, ','), kindNumber(s.Kind))
		b = appendNumber(append(b, ','), s.Seq)
		b = appendNumber(append(b, ','), s.ParentN)
		b = strconv.AppendInt(append(b, ','), s.Size, 10)
		if s.Stored == s.Size {
			b = append(b, ",null"...)
		} else {
			b = strconv.AppendInt(append(b, ','), s.Stored, 10)
		}
	}
	b = appendNumber(append(b, ','), a.gone)
	b = appendText(append(b, ','), a.why)
	b = appendHex(append(b, ','), a.subject)
	b = appendHex(append(b, ','), a.sha256)
	b = appendHex(append(b, ','), a.rest())
	b = appendHex(append(b, ','), a.beside)
	b = appendText(append(b, ','), a.more)
	b = appendQuoted(append(b, ','), key)
	b = appendQuoted(append(b, ','), before)
	return append(b, ']')
}

func (a *act) rest() []byte {
	if a.save == nil {
		return nil
	}
	return a.save.Rest
}

// moreText is JSON for the facts that have no column; "" if there are none.
func (a *act) moreText() string {
	s := a.save
	if s == nil || len(a.removed) == 0 && s.Labels == "" && !s.Pinned && !s.Suspect && (s.Parent == "" || s.ParentN > 0) {
		return ""
	}
	var members []string
	if s.Labels != "" {
		members = append(members, `"labels":"`+s.Labels+`"`)
	}
	if s.Parent != "" && s.ParentN == 0 {
		members = append(members, `"parent":`+string(appendQuoted(nil, string(s.Parent))))
	}
	if s.Pinned {
		members = append(members, `"pinned":true`)
	}
	if len(a.removed) > 0 {
		list := make([]string, len(a.removed))
		for i, r := range a.removed {
			list[i] = `[` + strconv.FormatInt(r.n, 10) + `,` + string(appendQuoted(nil, r.why)) + `]`
		}
		members = append(members, `"removed":[`+strings.Join(list, ",")+`]`)
	}
	if s.Suspect {
		members = append(members, `"suspect":true`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// The functions below write JSON in the way that SQLite's json_array does, so that the hash of a
// row can be computed again from the view.

// appendNumber writes null for 0.
func appendNumber(b []byte, v int64) []byte {
	if v == 0 {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, v, 10)
}

// appendText writes null for "".
func appendText(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	return appendQuoted(b, text)
}

func appendHex(b, bytes []byte) []byte {
	const digits = "0123456789ABCDEF"
	b = append(b, '"')
	for _, c := range bytes {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return append(b, '"')
}

func appendQuoted(b []byte, text string) []byte {
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
		}
	}
	return append(b, '"')
}
