package tree

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Version is the first line of the canonical text.
const Version = "ckpt-tree 1"

// ID returns the SHA-256 of a tree's canonical text, as 64 hexadecimal digits.
func ID(t *ckpt.Tree) string {
	sum := sha256.Sum256(Canonical(t))
	return hex.EncodeToString(sum[:])
}

// Canonical returns the text that identifies a tree. It has one line for each fact,
// ended by a line feed:
//
//	ckpt-tree 1
//	root /home/ada/project
//	git_head 0123456789abcdef0123456789abcdef01234567
//	complete true
//	left_out secret_name .env
//	file 0644 12 64-hexadecimal-digits src/main.go
//	link 7 target src/link
//
// The lines of left_out are sorted by path. The lines of files and links follow, sorted
// together by path. Paths are compared by their bytes. In names a backslash is written
// "\\", a space in a link's target "\x20", and a byte below 0x20 or 0x7f as "\x" with
// two hexadecimal digits in lower case. The time is not in the text: the same files
// always have the same id.
func Canonical(t *ckpt.Tree) []byte {
	var out bytes.Buffer
	out.Grow(160 * (len(t.Entries) + len(t.LeftOut) + 4))
	out.WriteString(Version + "\nroot ")
	escape(&out, t.Root, false)
	out.WriteString("\ngit_head " + t.GitHead + "\ncomplete " + strconv.FormatBool(t.Complete) + "\n")
	for _, l := range t.LeftOut {
		out.WriteString("left_out " + string(l.Why) + " ")
		escape(&out, l.Path, false)
		out.WriteByte('\n')
	}
	for _, e := range t.Entries {
		if e.IsLink() {
			out.WriteString("link " + strconv.FormatInt(e.Size, 10) + " ")
			escape(&out, e.Target, true)
		} else {
			out.WriteString("file " + e.Mode + " " + strconv.FormatInt(e.Size, 10) + " " + e.SHA256)
		}
		out.WriteByte(' ')
		escape(&out, e.Path, false)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func escape(out *bytes.Buffer, s string, space bool) {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\\':
			out.WriteString(`\\`)
		case c < 0x20, c == 0x7f, c == ' ' && space:
			fmt.Fprintf(out, `\x%02x`, c)
		default:
			out.WriteByte(c)
		}
	}
}

// Sort sorts a tree and counts its files and bytes.
func Sort(t *ckpt.Tree) {
	slices.SortFunc(t.Entries, func(a, b ckpt.TreeEntry) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(t.LeftOut, func(a, b ckpt.LeftOut) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(string(a.Why), string(b.Why)))
	})
	t.Files, t.Bytes = len(t.Entries), Bytes(t.Entries)
}

// Bytes returns the number of bytes of all files.
func Bytes(entries []ckpt.TreeEntry) (n int64) {
	for _, e := range entries {
		if !e.IsLink() {
			n += e.Size
		}
	}
	return n
}

// Limits limit a tree. The zero value means the limits of the root package.
type Limits struct {
	File, Tree int64 // bytes
	Files      int
}

// Defaults returns the limits that apply if no others are set.
func Defaults() Limits {
	return Limits{File: ckpt.MaxTreeFile, Tree: ckpt.MaxTreeBytes, Files: ckpt.MaxTreeFiles}
}

// Check refuses a tree that breaks a rule about paths, their order, entries that
// exclude each other, or limits.
func Check(t *ckpt.Tree, most Limits) error {
	if most == (Limits{}) {
		most = Defaults()
	}
	if err := checkHead(t); err != nil {
		return err
	}
	if len(t.Entries) > most.Files {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the tree has %d files: at most %d are allowed", len(t.Entries), most.Files)
	}
	var total int64
	files := make(map[string]bool, len(t.Entries)) // paths of files
	for i, e := range t.Entries {
		if err := CheckEntry(e, most.File); err != nil {
			return err
		}
		if i > 0 && t.Entries[i-1].Path >= e.Path {
			return ckpt.Errorf(ckpt.CodeInvalid, "the path %q is twice in the tree or out of order", cut(e.Path))
		}
		for at := strings.IndexByte(e.Path, '/'); at >= 0; {
			if files[e.Path[:at]] {
				return ckpt.Errorf(ckpt.CodeInvalid, "the path %q lies below a file of the tree", cut(e.Path))
			}
			next := strings.IndexByte(e.Path[at+1:], '/')
			if next < 0 {
				break
			}
			at += 1 + next
		}
		files[e.Path] = true
		if !e.IsLink() {
			total += e.Size
		}
		if total > most.Tree {
			return ckpt.Errorf(ckpt.CodeTooLarge, "the files of the tree have more than %d bytes", most.Tree)
		}
	}
	return nil
}

func checkHead(t *ckpt.Tree) error {
	if t.Root == "" || len(t.Root) > ckpt.MaxTreePath || !utf8.ValidString(t.Root) || strings.IndexByte(t.Root, 0) >= 0 {
		return ckpt.Errorf(ckpt.CodeInvalid, "the root %q of the tree is not the path of a folder", cut(t.Root))
	}
	if t.GitHead != "" && !isHex(t.GitHead, 40) && !isHex(t.GitHead, 64) {
		return ckpt.Errorf(ckpt.CodeInvalid, "git_head %q is not the id of a commit", cut(t.GitHead))
	}
	if len(t.LeftOut) > ckpt.MaxTreeLeftOut {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the tree names %d paths as left out: at most %d are allowed", len(t.LeftOut), ckpt.MaxTreeLeftOut)
	}
	for i, l := range t.LeftOut {
		if !slices.Contains(ckpt.LeftOutReasons, l.Why) {
			return ckpt.Errorf(ckpt.CodeInvalid, "%q is not a reason to leave out a path", cut(string(l.Why)))
		}
		// A path can be left out because no tree can hold it.
		if l.Path == "" || len(l.Path) > ckpt.MaxTreePath || !utf8.ValidString(l.Path) || strings.IndexByte(l.Path, 0) >= 0 {
			return ckpt.Errorf(ckpt.CodeInvalid, "the left out path %q is not text of 1 to %d bytes", cut(l.Path), ckpt.MaxTreePath)
		}
		if i > 0 && t.LeftOut[i-1].Path >= l.Path {
			return ckpt.Errorf(ckpt.CodeInvalid, "the left out path %q is there twice or out of order", cut(l.Path))
		}
	}
	return nil
}

// CheckEntry refuses an entry that is invalid in itself. most is the most bytes of a
// file.
func CheckEntry(e ckpt.TreeEntry, most int64) error {
	if err := CheckPath(e.Path); err != nil {
		return err
	}
	if e.IsLink() {
		if e.SHA256 != "" || e.Target == "" || e.Size != int64(len(e.Target)) || len(e.Target) > ckpt.MaxTreeTarget ||
			!utf8.ValidString(e.Target) || strings.IndexByte(e.Target, 0) >= 0 {
			return ckpt.Errorf(ckpt.CodeInvalid, "the link %q needs a target of 1 to %d bytes, its size, and no sha256",
				cut(e.Path), ckpt.MaxTreeTarget)
		}
		return nil
	}
	switch {
	case len(e.Mode) != 4 || e.Mode[0] != '0' || strings.Trim(e.Mode, "01234567") != "":
		return ckpt.Errorf(ckpt.CodeInvalid, "the mode %q of %q is not \"link\" or four octal digits from 0000 to 0777", cut(e.Mode), cut(e.Path))
	case !isHex(e.SHA256, 64):
		return ckpt.Errorf(ckpt.CodeInvalid, "the sha256 of %q is not 64 hexadecimal digits in lower case", cut(e.Path))
	case e.Target != "":
		return ckpt.Errorf(ckpt.CodeInvalid, "the file %q has a target, which only a link has", cut(e.Path))
	case e.Size < 0:
		return ckpt.Errorf(ckpt.CodeInvalid, "the size of %q is negative", cut(e.Path))
	case e.Size > most:
		return ckpt.Errorf(ckpt.CodeTooLarge, "the file %q has %d bytes: at most %d are allowed", cut(e.Path), e.Size, most)
	}
	return nil
}

func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}
