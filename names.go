package ckptsidecar

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of names and small values. The daemon's configuration has the limits of bodies.
const (
	MaxAgentName   = 128
	MaxRunName     = 255
	MaxKey         = 512 // a step key or an idempotency key, bytes
	maxLabels      = 32
	maxLabelKey    = 63
	MaxLabelValue  = 256
	MaxMetadata    = 64 << 10 // bytes of JSON
	maxContentType = 255
	maxReason      = 1024
)

// CheckAgentName accepts ^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$.
func CheckAgentName(name string) error {
	return checkName("agent", name, MaxAgentName, "._-")
}

// CheckRunName accepts ^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,254}$.
func CheckRunName(name string) error {
	if base := BaseRun(name); base != name && CheckLife(name) == nil {
		return Errorf(CodeInvalid, "%s is an earlier life of run %s, and stays as it ended: name %s, the present one", name, base, base)
	}
	return checkName("run", name, MaxRunName, "._:@+-")
}

func checkName(what, name string, most int, punctuation string) error {
	if name == "" {
		return Errorf(CodeInvalid, "the %s has no name: give one of letters, digits and %s", what, punctuation)
	}
	if len(name) > most {
		return Errorf(CodeInvalid, "the %s name is %d bytes long: at most %d are allowed", what, len(name), most)
	}
	for i, c := range name { // all before a wrong character are of one byte
		if c < utf8.RuneSelf && isAlphanumeric(byte(c)) || i > 0 && strings.ContainsRune(punctuation, c) {
			continue
		}
		return Errorf(CodeInvalid, "the %s name %q has %q at position %d: a name begins with a letter or digit and has only letters, digits and %s",
			what, name, c, i+1, punctuation)
	}
	return nil
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// RunOfSession returns a run name for a session or a conversation of another program: its own name
// if that is a valid run name, and otherwise a hash of it.
func RunOfSession(session string) string {
	if CheckRunName(session) == nil {
		return session
	}
	sum := sha256.Sum256([]byte(session))
	return "session-" + hex.EncodeToString(sum[:12])
}

// AgentNameOf makes an agent name from any text. It returns "" if the text has no valid character.
func AgentNameOf(text string) string {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (isAlphanumeric(byte(r)) || strings.ContainsRune("._-", r)) {
			return r
		}
		return '-'
	}, text)
	name = strings.Trim(name, "._-")
	return name[:min(len(name), MaxAgentName)]
}

// CheckKind accepts the three kinds. The message for "" says that the kind is missing.
func CheckKind(k Kind) error {
	if slices.Contains(Kinds, k) {
		return nil
	}
	if k == "" {
		return Errorf(CodeInvalid, "kind is missing: give routine, pre_operation or recovery")
	}
	return Errorf(CodeInvalid, "kind %q is unknown: it must be routine, pre_operation or recovery", cut(string(k)))
}

// CheckID accepts a UUID of version 7 in lower case, as RFC 9562 writes it.
func CheckID(id string) error {
	if !isUUID(id) {
		return Errorf(CodeInvalid, "%q is not an id: ids are UUIDs in lower case", cut(id))
	}
	if id[14] != '7' || strings.IndexByte("89ab", id[19]) < 0 {
		return Errorf(CodeInvalid, "%q is not a UUID of version 7", id)
	}
	return nil
}

func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range 36 {
		switch c := id[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// CheckKey accepts 1 to MaxKey bytes of printable UTF-8: step and idempotency keys.
func CheckKey(what, key string) error {
	switch {
	case key == "":
		return Errorf(CodeInvalid, "the %s is empty", what)
	case len(key) > MaxKey:
		return Errorf(CodeInvalid, "the %s is %d bytes long: at most %d are allowed", what, len(key), MaxKey)
	}
	return checkText(what, key)
}

// CheckReason accepts an empty or printable text of at most maxReason bytes.
func CheckReason(reason string) error {
	if len(reason) > maxReason {
		return Errorf(CodeInvalid, "the reason is %d bytes long: at most %d are allowed", len(reason), maxReason)
	}
	return checkText("reason", reason)
}

func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return Errorf(CodeInvalid, "the %s is not valid UTF-8", what)
	}
	if strings.IndexFunc(s, unicode.IsControl) >= 0 {
		return Errorf(CodeInvalid, "the %s has a control character", what)
	}
	return nil
}

// CheckLabels accepts at most maxLabels labels. Keys have letters, digits and ._/-. Values are
// printable UTF-8.
func CheckLabels(labels Labels) error {
	if len(labels) > maxLabels {
		return Errorf(CodeInvalid, "there are %d labels: at most %d are allowed", len(labels), maxLabels)
	}
	for key, value := range labels {
		if err := checkName("label", key, maxLabelKey, "._/-"); err != nil {
			return err
		}
		if len(value) > MaxLabelValue {
			return Errorf(CodeInvalid, "label %s is %d bytes long: at most %d are allowed", key, len(value), MaxLabelValue)
		}
		if checkText("label", value) != nil { // the message leaves out the value, which can be a secret
			return Errorf(CodeInvalid, "label %s has a control character or is not valid UTF-8", key)
		}
	}
	return nil
}

// CheckContentType accepts a media type of printable ASCII.
func CheckContentType(s string) error {
	if len(s) > maxContentType {
		return Errorf(CodeInvalid, "the Content-Type is %d bytes long: at most %d are allowed", len(s), maxContentType)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return Errorf(CodeInvalid, "the Content-Type has a byte that is not printable ASCII")
		}
	}
	return nil
}

// cut shortens a text of the caller for a message.
func cut(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// BaseRun returns the name of all lives of a run: main for main~2.
func BaseRun(run string) string {
	name, _, _ := strings.Cut(run, "~")
	return name
}

// LifeName returns how a reference names the life of a run that is so many lives ago: main~2. 0 is
// the present life.
func LifeName(name string, ago int) string {
	if ago == 0 {
		return name
	}
	return name + "~" + strconv.Itoa(ago)
}

// CheckLife accepts the name of a run, and the name of an earlier life of a run: main~2.
func CheckLife(name string) error {
	base, ago, past := strings.Cut(name, "~")
	if err := CheckRunName(base); err != nil || !past {
		return err
	}
	if n, err := strconv.Atoi(ago); err != nil || n < 1 || strconv.Itoa(n) != ago {
		return Errorf(CodeInvalid, "the run %q names no life: %s~1 is the life before the present one, %s~2 the one before that", cut(name), cut(base), cut(base))
	}
	return nil
}
