package tree

import (
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// CheckPath accepts a path that a tree may hold. It must be relative and UTF-8, with
// slashes, without empty components, "." and "..", and without a component that some
// system would take for ".git".
func CheckPath(path string) error {
	switch {
	case path == "":
		return ckpt.Errorf(ckpt.CodeInvalid, "a path of the tree is empty")
	case len(path) > ckpt.MaxTreePath:
		return ckpt.Errorf(ckpt.CodeInvalid, "a path of the tree is %d bytes long: at most %d are allowed", len(path), ckpt.MaxTreePath)
	case !utf8.ValidString(path):
		return ckpt.Errorf(ckpt.CodeInvalid, "the path %q is not UTF-8", cut(path))
	case strings.IndexByte(path, 0) >= 0:
		return ckpt.Errorf(ckpt.CodeInvalid, "the path %q has a NUL", cut(path))
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return ckpt.Errorf(ckpt.CodeInvalid, "the path %q has the component %q: paths are relative and plain", cut(path), part)
		}
		// A system that uses backslashes would see more components.
		for name := range strings.SplitSeq(part, `\`) {
			if name == ".." || IsGitFolder(name) {
				return ckpt.Errorf(ckpt.CodeInvalid, "the path %q has the component %q, which no tree may hold", cut(path), name)
			}
		}
	}
	return nil
}

// IsGitFolder reports whether any system takes a name for ".git": in upper or lower
// case, as Windows' short name, with the dots, spaces and streams that Windows drops,
// or with the invisible characters that macOS drops.
func IsGitFolder(name string) bool {
	name, _, _ = strings.Cut(name, ":")
	name = strings.Map(func(r rune) rune {
		if ignoredByHFS(r) {
			return -1
		}
		return r
	}, name)
	name = strings.TrimRight(name, ". ")
	if strings.EqualFold(name, ".git") {
		return true
	}
	short, number, found := strings.Cut(name, "~")
	if !found || !strings.EqualFold(short, "git") || number == "" {
		return false
	}
	return strings.Trim(number, "0123456789") == ""
}

// ignoredByHFS reports whether HFS+ ignores a character when it compares names.
func ignoredByHFS(r rune) bool {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return true
	}
	return false
}

// Fold returns the form in which systems that ignore case compare paths, as far as
// simple case folding goes.
func Fold(path string) string { return strings.ToLower(strings.ToUpper(path)) }

func cut(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
