package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// MissingContents returns which contents an agent does not have. The contents that it has stay for
// at least an hour.
func (s *Files) MissingContents(ctx context.Context, sc ckpt.Scope, agent string, sums []string) (*ckpt.ContentsMissing, error) {
	if err := mayWrite(sc, agent); err != nil {
		return nil, err
	}
	if len(sums) > ckpt.MaxContentsAsked {
		return nil, ckpt.Errorf(ckpt.CodeTooLarge, "the request asks for %d contents: at most %d are allowed", len(sums), ckpt.MaxContentsAsked)
	}
	for _, sum := range sums {
		if err := ckpt.CheckSHA256("hash of a content", sum); err != nil {
			return nil, err
		}
	}
	s.AuditForeign(sc, "missing_contents", agent, "")
	row, err := s.FindAgent(ctx, sc, agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return &ckpt.ContentsMissing{Missing: append([]string{}, sums...)}, nil
	}
	if err != nil {
		return nil, err
	}
	there, ending, err := s.contentsThere(ctx, row.ID, sums)
	if err != nil {
		return nil, err
	}
	answer := &ckpt.ContentsMissing{Missing: []string{}}
	for _, sum := range sums {
		if !there[sum] {
			answer.Missing = append(answer.Missing, sum)
		}
	}
	return answer, s.leaseContents(sc, row, ending)
}

// contentsNamed are the contents that the array ?1 names. CROSS JOIN makes SQLite look up each of
// them. Without it, SQLite may read the whole array once for each content of the agent.
const contentsNamed = `json_each(?1) w CROSS JOIN contents c `

const (
	// SelectThere finds the contents of the agent ?2 whose hashes are in the array ?1, and says
	// which leases end before ?3.
	SelectThere = `SELECT DISTINCT w.value AS sum, c.id, coalesce(l.until, '') < ?3 AS ending FROM ` + contentsNamed +
		`ON c.agent_id = ?2 AND c.sha256 = unhex(w.value) LEFT JOIN content_leases l ON l.content_id = c.id`
	// SelectSizes finds the same, with the sizes of the contents.
	SelectSizes = `SELECT w.value AS sum, c.id, c.size FROM ` + contentsNamed + `ON c.agent_id = ?2 AND c.sha256 = unhex(w.value)`
	// SelectLeased finds the contents whose row ids are in the array ?1. ?2 is a time.
	SelectLeased = `SELECT c.id, ?2 FROM ` + contentsNamed + `ON c.id = w.value WHERE c.agent_id = ?3 AND c.sha256 IS NOT NULL`
)

// contentsThere says which contents an agent has, and whose lease ends within an hour or has ended.
func (s *Files) contentsThere(ctx context.Context, agent int64, sums []string) (there map[string]bool, ending []int64, err error) {
	there = map[string]bool{}
	enough := ckpt.At(s.Opt.Now().Add(lease))
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		var rows []struct {
			Sum    string `db:"sum"`
			ID     int64  `db:"id"`
			Ending bool   `db:"ending"`
		}
		err := q.SelectContext(ctx, &rows, SelectThere, list(sums), agent, enough)
		for _, r := range rows {
			there[r.Sum] = true
			if r.Ending {
				ending = append(ending, r.ID)
			}
		}
		return err
	})
	return there, ending, err
}

// leaseContents extends the leases of contents.
func (s *Files) leaseContents(sc ckpt.Scope, agent *ledger.AgentRow, ids []int64) error {
	for len(ids) > 0 {
		some := ids[:min(len(ids), 5*batchRows)]
		ids = ids[len(some):]
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
			tx.Touches()
			return tx.Insert(`INSERT INTO content_leases (content_id, until) `+SelectLeased+
				` ON CONFLICT (content_id) DO UPDATE SET until = max(until, excluded.until)`, list(some), leased(tx.Now), agent.ID)
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// PutContents stores contents, which next returns one after the other, and io.EOF after the last.
// It does not store a content again that the agent has already. A transaction holds at most 4 MiB,
// so the contents before an error stay.
func (s *Files) PutContents(ctx context.Context, sc ckpt.Scope, agent string, next func() (*ckpt.FileContent, error)) (*ckpt.ContentsStored, error) {
	if err := mayWrite(sc, agent); err != nil {
		return nil, err
	}
	mode, err := s.SecretsMode(sc, agent)
	if err != nil {
		return nil, err
	}
	s.AuditForeign(sc, "put_contents", agent, "")
	u := &upload{Files: s, ctx: ctx, sc: sc, agent: agent, mode: mode, answer: &ckpt.ContentsStored{Refused: []ckpt.ContentRefused{}}}
	for {
		content, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.add(content)
		}
		if err != nil {
			return nil, err
		}
	}
	return u.answer, u.flush()
}

// upload is a request to store contents.
type upload struct {
	*Files
	ctx    context.Context
	sc     ckpt.Scope
	agent  string
	mode   ckpt.SecretsMode
	answer *ckpt.ContentsStored
	batch  []*encoded
	size   int64 // bytes to store for the batch
	raw    int64 // bytes of its contents
}

// add prepares a content, and stores the prepared contents if they are enough for a transaction.
func (u *upload) add(content *ckpt.FileContent) error {
	if err := checkContent(content); err != nil {
		return err
	}
	sum := sha256.Sum256(content.Data)
	if hex.EncodeToString(sum[:]) != content.SHA256 {
		return ckpt.Errorf(ckpt.CodeInvalid, "the content %s has another hash: it changed while being read or sent; send it again", content.SHA256)
	}
	var found []secrets.Secret
	if u.Opt.Secrets != nil && u.mode != ckpt.SecretsOff {
		found = u.Opt.Secrets.Find(content.Data, false)
	}
	if len(found) > 0 && u.mode != ckpt.SecretsWarn {
		u.answer.Refused = append(u.answer.Refused, ckpt.ContentRefused{SHA256: content.SHA256, Why: ckpt.LeftOutSecret,
			Detail: "it holds what looks like " + found[0].Kind + ", and the agent's policy says secrets: " + string(u.mode)})
		return nil
	}
	if content.Was != "" && slices.ContainsFunc(u.batch, func(e *encoded) bool { return e.hex == content.Was }) {
		if err := u.flush(); err != nil { // the content that it is a change to must be stored first
			return err
		}
	}
	e, err := u.encode(content, sum[:])
	if err != nil {
		return err
	}
	if e == nil {
		u.answer.Known++
		return nil
	}
	if len(found) > 0 {
		e.secret = found[0].Kind
	}
	if u.size+int64(len(e.data)) > batchBytes || u.raw+e.size > 4*batchBytes || len(u.batch) >= batchRows {
		if err := u.flush(); err != nil {
			return err
		}
	}
	u.batch = append(u.batch, e)
	u.size += int64(len(e.data))
	u.raw += e.size
	return nil
}

func checkContent(content *ckpt.FileContent) error {
	if err := ckpt.CheckSHA256("hash of a content", content.SHA256); err != nil {
		return err
	}
	if len(content.Data) > ckpt.MaxTreeFile {
		return ckpt.Errorf(ckpt.CodeTooLarge, "the content %s has %d bytes: at most %d are allowed",
			content.SHA256, len(content.Data), ckpt.MaxTreeFile)
	}
	if content.Was == "" {
		return nil
	}
	return ckpt.CheckSHA256("hash of the version before", content.Was)
}

// encode prepares a content outside the writer. It returns nil if the agent has the content already
// and its lease is long enough.
func (u *upload) encode(content *ckpt.FileContent, sum []byte) (e *encoded, err error) {
	known := false
	var was *Row
	var base *delta.Base
	agent, err := u.FindAgent(u.ctx, u.sc, u.agent)
	if err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound {
		return nil, err
	}
	if agent != nil {
		err = u.Reading(u.ctx, func(q *sqlx.Tx) error {
			enough := ckpt.At(u.Opt.Now().Add(lease))
			err := q.GetContext(u.ctx, &known, `SELECT EXISTS (SELECT 1 FROM contents c JOIN content_leases l ON l.content_id = c.id
				WHERE c.agent_id = ? AND c.sha256 = ? AND l.until >= ?)`, agent.ID, sum, enough)
			if err != nil || known || content.Was == "" || content.Was == content.SHA256 {
				return err
			}
			was, err = rowOf(u.ctx, q, agent.ID, content.Was)
			if err != nil || was == nil {
				return err
			}
			base, err = decodeBase(u.ctx, q, was)
			if ckpt.CodeOf(err) == ckpt.CodeCorrupt { // what is based on it would be damaged too
				base, err = nil, nil
			}
			return err
		})
		if err != nil || known {
			return nil, err
		}
	}
	if base != nil {
		return encode(content.Data, sum, was, base), nil
	}
	return u.encodeNew(agent, content.Data, sum)
}

// encodeNew prepares a content without a previous version: it may be similar to another one.
func (u *upload) encodeNew(agent *ledger.AgentRow, data, sum []byte) (*encoded, error) {
	known, now := features(data), u.Opt.Now()
	name := alikeName(u.sc.Whose(), u.agent)
	var e *encoded
	if like := u.alike.find(name, known, now); like != "" {
		at := slices.IndexFunc(u.batch, func(e *encoded) bool { return e.hex == like })
		switch {
		case at >= 0 && u.batch[at].pieces == nil:
			e = encodeLike(data, sum, u.batch[at])
		case at < 0 && agent != nil:
			row, base, err := u.likeRow(agent.ID, like)
			if err != nil {
				return nil, err
			}
			e = encode(data, sum, row, base)
		}
	}
	if e == nil {
		e = encode(data, sum, nil, nil)
	}
	if e.pieces == nil { // other contents similar to that one are similar to this one
		u.alike.add(name, e.hex, known, now)
	}
	return e, nil
}

// likeRow reads the content that another one is similar to, nil if it is gone or damaged.
func (u *upload) likeRow(agent int64, sum string) (row *Row, base *delta.Base, err error) {
	err = u.Reading(u.ctx, func(q *sqlx.Tx) error {
		if row, err = rowOf(u.ctx, q, agent, sum); err != nil || row == nil {
			return err
		}
		base, err = decodeBase(u.ctx, q, row)
		if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
			base, err = nil, nil
		}
		return err
	})
	return row, base, err
}

// rowOf returns the content of an agent with a hash, nil if there is none.
func rowOf(ctx context.Context, q sqlx.QueryerContext, agent int64, sum string) (*Row, error) {
	bytes, err := hex.DecodeString(sum)
	if err != nil {
		return nil, err
	}
	var row Row
	err = sqlx.GetContext(ctx, q, &row, `SELECT `+Columns+` FROM contents WHERE agent_id = ? AND sha256 = ?`, agent, bytes)
	if ledger.IsNoRows(err) {
		return nil, nil
	}
	return &row, err
}

// flush stores the prepared contents in one transaction.
func (u *upload) flush() error {
	batch := u.batch
	if u.batch, u.size, u.raw = nil, 0, 0; len(batch) == 0 {
		return nil
	}
	size := int64(0)
	for _, e := range batch {
		size += int64(len(e.data))
	}
	if err := u.makeRoom(u.ctx, u.sc, u.agent, size); err != nil {
		return err
	}
	var stored, known int
	var bytes, takes int64
	entry := ledger.Entry(u.sc, "put_contents", u.agent)
	err := u.Submit(&ledger.Op{Owner: u.sc.Caller.Owner, Size: size, Entry: entry, Do: func(tx *ledger.Tx) error {
		stored, known, bytes, takes = 0, 0, 0, 0
		tx.Touches()
		agent, err := u.MakeAgent(tx, u.sc.Whose(), u.agent)
		if err != nil {
			return err
		}
		for _, e := range batch {
			if err := u.insert(tx, agent.ID, e); err != nil {
				return err
			}
			if !e.isNew {
				known++
				continue
			}
			stored++
			bytes += e.size
			takes += int64(len(e.data))
		}
		tx.OnCommit(func() { u.noteStored(agent.ID, takes) })
		return nil
	}})
	if err != nil {
		return err
	}
	u.answer.Stored += stored
	u.answer.Known += known
	u.answer.Bytes += bytes
	u.answer.StoredBytes += takes
	return nil
}

// insert stores a content, unless it exists already.
func (u *upload) insert(tx *ledger.Tx, agent int64, e *encoded) error {
	there, err := tx.Get(&e.rowID, `SELECT id FROM contents WHERE agent_id = ? AND sha256 = ?`, agent, e.sum)
	if err != nil {
		return err
	}
	if e.isNew = !there; !there {
		if err := stillUsable(tx, agent, e); err != nil {
			return err
		}
		if e.rowID, err = insertContent(tx, agent, e); err != nil {
			return err
		}
	}
	return tx.Insert(`INSERT INTO content_leases (content_id, until) VALUES (?, ?) ON CONFLICT (content_id) DO UPDATE
		SET until = max(until, excluded.until)`,
		e.rowID, leased(tx.Now))
}

// stillUsable makes a content independent if the content that it is a change to was removed since
// it was read, or existed already and may be stored in another form.
func stillUsable(tx *ledger.Tx, agent int64, e *encoded) error {
	if e.in != nil && (!e.in.isNew || e.in.pieces != nil) {
		e.whole()
	}
	if e.was == "" {
		return nil
	}
	var there bool
	sum, err := hex.DecodeString(e.was)
	if err == nil {
		_, err = tx.Get(&there, `SELECT EXISTS (SELECT 1 FROM contents WHERE id = ? AND agent_id = ? AND sha256 = ?)`, e.wasID, agent, sum)
	}
	if err == nil && !there {
		e.whole()
	}
	return err
}

func insertContent(tx *ledger.Tx, agent int64, e *encoded) (id int64, err error) {
	var pieces any
	list := e.stored()
	if list != nil {
		pieces = blob.WritePieces(list)
	}
	err = tx.InsertGet(&id, `INSERT INTO contents (agent_id, sha256, size, pieces, fresh, data) VALUES (?, ?, ?, ?, ?, ?) RETURNING id`,
		agent, e.sum, e.size, pieces, e.fresh, notNil(e.data))
	if err != nil {
		return 0, err
	}
	for _, used := range usesOf(list) {
		if err := tx.Insert(`INSERT INTO content_uses (used, used_by) VALUES (?, ?)`, used, id); err != nil {
			return 0, err
		}
	}
	if e.secret != "" {
		err = tx.Insert(`INSERT INTO content_secrets (content_id, kind) VALUES (?, ?)`, id, e.secret)
	}
	return id, err
}

func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// Read reads a content of an agent from a snapshot.
func Read(ctx context.Context, q sqlx.QueryerContext, agent int64, sum string) ([]byte, error) {
	row, err := rowOf(ctx, q, agent, sum)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, ckpt.Wrap(ckpt.CodeCorrupt, &blob.DamageError{What: "it is not there"}, "the content %s is missing; run ckptsidecar verify", sum)
	}
	return Decode(ctx, q, row)
}

// Content reads the content of a file. It never returns damaged content.
func (s *Files) Content(ctx context.Context, sc ckpt.Scope, agent, sum string) ([]byte, error) {
	if err := ckpt.CheckSHA256("hash of the content", sum); err != nil {
		return nil, err
	}
	row, err := s.FindAgent(ctx, sc, agent)
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read_content", agent, "")
	var data []byte
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		content, err := rowOf(ctx, q, row.ID, sum)
		if err == nil && content == nil {
			err = ckpt.Errorf(ckpt.CodeNotFound, "agent %s has no content %s", agent, sum)
		}
		if err == nil {
			data, err = Decode(ctx, q, content)
		}
		return err
	})
	return data, err
}
