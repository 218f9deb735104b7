package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Head is an earlier end of the audit log, as the daemon logged it.
type Head struct {
	N        int64
	Hash     string
	Database string // the id of the database, "" if unknown
}

var (
	headAlone = regexp.MustCompile(`^(\d{1,18}):([0-9a-f]{64})$`)
	headField = map[string]*regexp.Regexp{ // in a line of text, JSON, or text inside JSON
		"n":        regexp.MustCompile(`\bn(?:=|\\?":)(\d{1,18})\b`),
		"hash":     regexp.MustCompile(`\bhash(?:=|\\?":\\?")([0-9a-f]{64})\b`),
		"database": regexp.MustCompile(`\bdatabase(?:=|\\?":\\?")([0-9a-f-]{36})\b`),
	}
)

// headWords are in each line of the daemon's log that holds a head.
const headWords = "audit head"

// ParseHead reads one head: NUMBER:HASH, or a line of the daemon's log.
func ParseHead(line string) (Head, bool) {
	line = strings.TrimSpace(line)
	if match := headAlone.FindStringSubmatch(line); match != nil {
		n, err := strconv.ParseInt(match[1], 10, 64)
		return Head{N: n, Hash: match[2]}, err == nil && n > 0
	}
	if !strings.Contains(line, headWords) {
		return Head{}, false
	}
	field := func(name string) string {
		if match := headField[name].FindStringSubmatch(line); match != nil {
			return match[1]
		}
		return ""
	}
	n, err := strconv.ParseInt(field("n"), 10, 64)
	head := Head{N: n, Hash: field("hash"), Database: field("database")}
	return head, err == nil && n > 0 && head.Hash != ""
}

// headLine is the length of the longest line that ReadHeads examines.
const headLine = 64 << 10

// ReadHeads finds the heads in a daemon's log: as text, as JSON, or as journalctl prints it. It
// skips other lines.
func ReadHeads(log io.Reader) (heads []Head, err error) {
	in := bufio.NewReaderSize(log, headLine)
	for {
		line, err := in.ReadSlice('\n')
		if head, ok := ParseHead(string(line)); ok {
			heads = append(heads, head)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // a longer line holds no head
			_, err = in.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF):
			return heads, nil
		case err != nil:
			return nil, err
		}
	}
}

// VerifyAgainst is Verify, and also checks that the audit log still has the heads that its daemon
// logged. It skips heads of other databases. If none is left, it returns an error.
func VerifyAgainst(ctx context.Context, path string, heads []Head, progress func(done, total int64)) (*VerifyReport, error) {
	return verify(ctx, path, heads, progress)
}

// expect keeps the heads that belong to this database.
func (v *verifier) expect(ctx context.Context, heads []Head) error {
	if len(heads) == 0 {
		return nil
	}
	var id string
	if err := v.db.GetContext(ctx, &id, `SELECT value FROM meta WHERE key = 'database_id'`); err != nil {
		return v.met(ctx, "meta", err)
	}
	v.heads = map[int64]string{}
	for _, h := range heads {
		if h.Database != "" && h.Database != id {
			continue
		}
		if before, twice := v.heads[h.N]; twice && before != h.Hash {
			v.found("audit_head", fmt.Sprintf("row %d", h.N),
				"the daemon logged two hashes of it: %s and %s; an older copy of the database was put back and used", before, h.Hash)
		}
		v.heads[h.N] = h.Hash
	}
	if len(v.heads) == 0 {
		return ckpt.Errorf(ckpt.CodeInvalid, "none of the heads belongs to this database, whose id is %s", id)
	}
	v.report.Heads = int64(len(v.heads))
	return nil
}

// compareHead compares a row of the log with a logged head.
func (v *verifier) compareHead(n int64, hash string) {
	logged, is := v.heads[n]
	if is && logged != hash {
		v.found("audit_head", fmt.Sprintf("row %d", n),
			"the daemon logged %s as its hash, and the database has another: the log was rewritten, or an older copy was put back and used", logged)
	}
	delete(v.heads, n)
}

// missingHeads reports the heads whose rows do not exist.
func (v *verifier) missingHeads() {
	for _, n := range slices.Sorted(maps.Keys(v.heads)) {
		if n <= v.floor { // its row is archived
			v.report.HeadsArchived++
			continue
		}
		v.found("audit_head", fmt.Sprintf("row %d", n),
			"the daemon logged it, and the database does not have it: rows were removed, or this is an older copy")
	}
}
