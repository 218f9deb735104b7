package ckptsidecar

import (
	"slices"
	"strings"
)

// Limits of trees and their contents.
const (
	MaxTreeFile    = 4 << 20   // bytes of one file
	MaxTreeFiles   = 20_000    // files and links of a tree
	MaxTreeBytes   = 256 << 20 // bytes of all files of a tree
	MaxTreeTarget  = 4 << 10   // bytes of a link's target
	MaxTreePath    = 4 << 10   // bytes of a path
	MaxTreeLeftOut = 10_000    // paths that a tree names as left out
)

// LinkMode is the mode of a tree entry that is a symbolic link.
const LinkMode = "link"

// TreeEntry is one path of a tree: a file or a symbolic link.
type TreeEntry struct {
	Path   string `json:"path" db:"path"`     // relative to the root, with slashes
	Mode   string `json:"mode" db:"mode"`     // permission bits as four octal digits, such as "0644", or LinkMode
	Size   int64  `json:"size" db:"size"`     // bytes of the file, or of the link's target
	SHA256 string `json:"sha256" db:"sha256"` // of the file's bytes; "" for a link
	Target string `json:"target,omitempty" db:"target"`
}

// IsLink reports whether an entry is a symbolic link.
func (e TreeEntry) IsLink() bool { return e.Mode == LinkMode }

// LeftOut is a path that a tree does not contain, and the reason.
type LeftOut struct {
	Path string         `json:"path" db:"path"`
	Why  LeftOutBecause `json:"why" db:"why"`
}

// LeftOutBecause is why a path is not in a tree.
type LeftOutBecause string

// The reasons why a path is not in a tree.
const (
	LeftOutTooLarge   LeftOutBecause = "too_large"   // a file over MaxTreeFile, or a link's target over MaxTreeTarget
	LeftOutTooMany    LeftOutBecause = "too_many"    // the tree has MaxTreeFiles files already
	LeftOutTreeFull   LeftOutBecause = "tree_full"   // the tree has MaxTreeBytes bytes already
	LeftOutPath       LeftOutBecause = "path"        // the path cannot be in a tree
	LeftOutSpecial    LeftOutBecause = "special"     // a device, a socket, a named pipe
	LeftOutSecretName LeftOutBecause = "secret_name" // an untracked file with a name that suggests a secret
	LeftOutSecret     LeftOutBecause = "secret"      // its bytes contain a secret, and the policy refuses secrets
	LeftOutUnstable   LeftOutBecause = "unstable"    // it changed while being read, three times
	LeftOutUnreadable LeftOutBecause = "unreadable"  // the user may not read it
	LeftOutElsewhere  LeftOutBecause = "elsewhere"   // it is on another file system
	LeftOutTooDeep    LeftOutBecause = "too_deep"    // a repository that is more than 32 levels deep in other repositories
)

// LeftOutReasons lists every reason.
var LeftOutReasons = []LeftOutBecause{
	LeftOutTooLarge, LeftOutTooMany, LeftOutTreeFull, LeftOutPath, LeftOutSpecial, LeftOutSecretName, LeftOutSecret,
	LeftOutUnstable, LeftOutUnreadable, LeftOutElsewhere, LeftOutTooDeep,
}

// Tree is the files below a root at one moment. It never changes. Its id is the SHA-256 of its
// canonical text, which internal/tree writes. The text has all members except ID, CapturedAt, Files
// and Bytes.
type Tree struct {
	ID         string      `json:"id" db:"id"`
	Root       string      `json:"root" db:"root"`         // the folder, as an absolute path of the client's system
	GitHead    string      `json:"git_head" db:"git_head"` // the commit that was checked out; "" if there was none
	CapturedAt Time        `json:"captured_at" db:"captured_at"`
	Complete   bool        `json:"complete" db:"complete"` // false if more paths can be missing than LeftOut names
	Files      int         `json:"files" db:"files"`
	Bytes      int64       `json:"bytes" db:"bytes"`
	LeftOut    []LeftOut   `json:"left_out,omitempty" db:"-"`
	Entries    []TreeEntry `json:"entries,omitempty" db:"-"` // sorted by the bytes of their paths
}

// FileChange is one difference between two trees.
type FileChange struct {
	Path   string         `json:"path"`
	Change FileChangeKind `json:"change"`
	Before *TreeEntry     `json:"before,omitempty"` // nil for an added file
	After  *TreeEntry     `json:"after,omitempty"`  // nil for a removed file
}

// FileChangeKind is how a path differs between two trees.
type FileChangeKind string

// The changes of a path.
const (
	FileAdded    FileChangeKind = "added"
	FileModified FileChangeKind = "modified" // its bytes, its target, or whether it is a link
	FileMode     FileChangeKind = "mode"     // only its permission bits
	FileRemoved  FileChangeKind = "removed"
)

// TreeRequest stores a tree: the entries of a base, without the removed ones, plus the ones in Set.
type TreeRequest struct {
	Agent      string      `json:"-"`
	Base       string      `json:"base,omitempty"` // the id of a tree of the same agent; "" for an empty one
	Root       string      `json:"root"`
	GitHead    string      `json:"git_head,omitempty"`
	CapturedAt Time        `json:"captured_at"`
	Complete   bool        `json:"complete"`
	LeftOut    []LeftOut   `json:"left_out,omitempty"`
	Set        []TreeEntry `json:"set,omitempty"`
	Removed    []string    `json:"removed,omitempty"`
}

// TreeStored is the answer to a TreeRequest. A save or an attachment can name the tree until it
// expires. A tree that a checkpoint names stays as long as that checkpoint.
type TreeStored struct {
	ID      string `json:"id"`
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Expires Time   `json:"expires"`
}

// MaxTrees is the maximum number of trees of one checkpoint.
const MaxTrees = 8

// FileContent is the content of a file to store.
type FileContent struct {
	SHA256 string
	Was    string // the SHA-256 of the previous version, as the base for storing only the change; "" for none
	Data   []byte
}

// Limits of the calls that store contents and trees.
const (
	MaxContentsAsked = 10_000   // hashes in one question for missing contents
	MaxContentsBody  = 64 << 20 // bytes of contents in one call, including their header lines
	MaxTreeBody      = 8 << 20  // bytes of a TreeRequest
)

// ContentsMissing lists the contents that an agent does not have. The contents that it has stay for
// another hour.
type ContentsMissing struct {
	Missing []string `json:"missing"`
}

// ContentsStored is the result for each content of a request.
type ContentsStored struct {
	Stored      int              `json:"stored"`       // the number of contents that were new
	Known       int              `json:"known"`        // the number of contents that were there already
	Bytes       int64            `json:"bytes"`        // of the new ones
	StoredBytes int64            `json:"stored_bytes"` // bytes that the new ones use in the database
	Refused     []ContentRefused `json:"refused"`      // their files must be left out of the tree
}

// ContentRefused is a content that was not stored, and the reason.
type ContentRefused struct {
	SHA256 string         `json:"sha256"`
	Why    LeftOutBecause `json:"why"`
	Detail string         `json:"detail"` // never a part of the content
}

// AttachRequest adds trees to a saved checkpoint. This is possible once, and within a minute of the
// save, also if the run has ended since.
type AttachRequest struct {
	Checkpoint     string   `json:"-"`
	Trees          []string `json:"trees"` // at most MaxTrees, each with a different root
	Run            string   `json:"run,omitempty"`
	Epoch          *int64   `json:"epoch,omitempty"`
	IdempotencyKey string   `json:"-"`
}

// FilesFilter chooses files of a checkpoint.
type FilesFilter struct {
	Checkpoint string
	Tree       string // the id of one of its trees; "" for the first one
	After      string // Next of the previous page
	Limit      int    // 0 for MaxFilesPage
}

// MaxFilesPage is the maximum size of a page of files, or of their changes.
const MaxFilesPage = 10_000

// FilesPage is one page of the files of a checkpoint, by path.
type FilesPage struct {
	Trees []Tree      `json:"trees"` // of the checkpoint, without entries
	Tree  string      `json:"tree"`  // the id of the tree that these files belong to
	Files []TreeEntry `json:"files"`
	Next  Ref         `json:"next"` // null on the last page
}

// FilesDiffFilter chooses what to compare.
type FilesDiffFilter struct {
	From, To string // ids of checkpoints
	Root     string // "" if each checkpoint has one tree
	After    string // Next of the previous page
	Limit    int    // 0 for MaxFilesPage
}

// FilesDiff lists the differences between the files of two checkpoints, by path.
type FilesDiff struct {
	Root    string       `json:"root"`
	From    string       `json:"from"` // the ids of the compared trees
	To      string       `json:"to"`
	Changes []FileChange `json:"changes"`
	Next    Ref          `json:"next"` // null on the last page
}

// CheckSHA256 accepts 64 hexadecimal digits in lower case.
func CheckSHA256(what, sum string) error {
	if len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == "" {
		return nil
	}
	return Errorf(CodeInvalid, "the %s is not a SHA-256: it must have 64 hexadecimal digits in lower case", what)
}

// CheckTrees accepts the ids of at most MaxTrees trees without duplicates.
func CheckTrees(ids []string) error {
	if len(ids) > MaxTrees {
		return Errorf(CodeInvalid, "%d trees are named: a checkpoint has at most %d", len(ids), MaxTrees)
	}
	for i, id := range ids {
		if err := CheckSHA256("id of the tree", id); err != nil {
			return err
		}
		if slices.Contains(ids[:i], id) {
			return Errorf(CodeInvalid, "the tree %s is listed twice", id)
		}
	}
	return nil
}
