package audit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// readLinks reads the hashes of archived rows that are followed by a row here.
func (v *verifier) readLinks(ctx context.Context) error {
	v.links = map[int64]string{}
	var rows []struct {
		N    int64  `db:"n"`
		Hash string `db:"hash"`
	}
	err := v.db.SelectContext(ctx, &rows, `SELECT n, hash FROM audit_links WHERE n <= (SELECT max(to_n) FROM audit_archives)
		UNION ALL SELECT to_n, hash FROM audit_archives`)
	for _, row := range rows {
		if before, twice := v.links[row.N]; twice && before != row.Hash {
			v.found("audit_chain", fmt.Sprintf("row %d", row.N), "the hash before the next row differs from the archived one")
		}
		v.links[row.N] = row.Hash
		v.floor = max(v.floor, row.N)
	}
	return v.met(ctx, "audit_links", err)
}

// follows returns what a row follows: the row before, or an archived row.
func (v *verifier) follows(last ledger.ChainHead, n int64) ledger.ChainHead {
	if hash, archived := v.links[n-1]; archived && last.N != n-1 {
		return ledger.ChainHead{N: n - 1, Hash: hash}
	}
	return last
}

// chain computes the hash of every row of the audit log again. It first reads where the log ends, and up to where other
// tables name its rows: rows that are added meanwhile come after it.
func (v *verifier) chain(ctx context.Context) error {
	var end, named int64
	err := v.db.QueryRowContext(ctx, `SELECT coalesce((SELECT max(n) FROM acts), 0), coalesce((SELECT max(n) FROM (SELECT max(n) AS n FROM checkpoints
		UNION ALL SELECT max(n) FROM ids UNION ALL SELECT max(n) FROM act_texts)), 0)`).Scan(&end, &named)
	if err != nil {
		return v.met(ctx, "acts", err)
	}
	if err := v.readLinks(ctx); err != nil {
		return err
	}
	err = v.db.SelectContext(ctx, &v.given, `SELECT n, agent, from_owner, to_owner FROM owner_changes ORDER BY n`)
	if err := v.met(ctx, "owner_changes", err); err != nil {
		return err
	}
	last, err := v.acts(ctx, end)
	if err != nil {
		return err
	}
	v.report.AuditHeadN, v.report.AuditHead, v.read = last.N, last.Hash, last.N
	v.missingHeads()
	if named > last.N {
		v.found("audit_chain", "end", "the last row is %d, and other tables name rows up to %d: rows are missing or were changed", last.N, named)
	}
	return v.changed(ctx)
}

// acts checks the rows. The input of a hash ends with the hash of the row before.
func (v *verifier) acts(ctx context.Context, to int64) (last ledger.ChainHead, err error) {
	rows, err := v.db.QueryxContext(ctx, ledger.ViewOf("audit_chain")+`SELECT n, input, hash FROM audit_chain WHERE n <= ? ORDER BY n`, to)
	if err != nil {
		return last, v.met(ctx, "acts", err)
	}
	defer rows.Close()
	for rows.Next() {
		var link ledger.Link
		if err := rows.StructScan(&link); err != nil {
			return last, v.met(ctx, "acts", err)
		}
		last = v.link(v.follows(last, link.N), &link, to)
	}
	return last, v.met(ctx, "acts", rows.Err())
}

// link checks a row: whether its number follows the row before, and whether its hash matches its
// contents, which include the hash of the row before.
func (v *verifier) link(before ledger.ChainHead, row *ledger.Link, total int64) ledger.ChainHead {
	subject := fmt.Sprintf("row %d", row.N)
	if row.N != before.N+1 {
		v.found("audit_chain", subject, "does not follow row %d", before.N)
	}
	if !row.Holds() {
		v.found("audit_chain", subject, "its hash does not match its contents")
	}
	v.compareHead(row.N, row.Hash)
	v.report.AuditRows++
	if row.N%1000 == 0 {
		v.progress(row.N, total)
	}
	return ledger.ChainHead{N: row.N, Hash: row.Hash}
}

// changed notes the newest labels and pins that acts record.
func (v *verifier) changed(ctx context.Context) error {
	var rows []struct {
		N       int64  `db:"n"`
		Owner   string `db:"owner"`
		Agent   string `db:"agent"`
		Subject string `db:"subject"`
		Detail  string `db:"detail"`
	}
	err := v.db.SelectContext(ctx, &rows, `SELECT a.n, coalesce(p.owner, '') AS owner, coalesce(p.agent, '') AS agent, `+
		ledger.UUIDOf("a.subject")+` AS subject, t.detail AS detail
		FROM acts a JOIN act_texts t ON t.n = a.n LEFT JOIN places p ON p.id = a.place
		WHERE a.action = 'change' AND a.outcome IS NULL AND a.n <= ?
		AND t.detail IS NOT NULL ORDER BY a.n`, v.read)
	for i := range rows {
		r := &rows[i]
		v.noteChange(r.N, r.Owner, r.Agent, r.Subject, json.RawMessage(r.Detail))
	}
	return v.met(ctx, "acts", err)
}

// texts checks the texts beside the log against the hashes in the log. A missing text must have
// been erased with its agent.
func (v *verifier) texts(ctx context.Context) error {
	rows, err := v.db.QueryxContext(ctx, ledger.ViewOf("audit_texts")+`SELECT n, input, coalesce(hash, '') AS hash FROM audit_texts`)
	if err != nil {
		return v.met(ctx, "act_texts", err)
	}
	defer rows.Close()
	for rows.Next() {
		var link ledger.Link
		if err := rows.StructScan(&link); err != nil {
			return v.met(ctx, "act_texts", err)
		}
		if !link.Holds() {
			v.found("audit_text", fmt.Sprintf("row %d", link.N), "its detail does not match the hash in the audit log")
		}
	}
	if err := rows.Err(); err != nil {
		return v.met(ctx, "act_texts", err)
	}
	return v.missingTexts(ctx)
}

func (v *verifier) missingTexts(ctx context.Context) error {
	var missing []int64
	err := v.db.SelectContext(ctx, &missing, `WITH erasures (owner, agent, after, upto) AS (
			SELECT p.owner, p.agent, coalesce((SELECT max(o.n) FROM owner_changes o
				WHERE o.from_owner = p.owner AND o.agent = p.agent AND o.n < a.n), 0), a.n
			FROM acts a JOIN places p ON p.id = a.place WHERE a.action = 'erase' AND a.outcome IS NULL
			UNION ALL -- it had another owner before
			SELECT o.from_owner, o.agent, coalesce((SELECT max(b.n) FROM owner_changes b WHERE b.from_owner = o.from_owner AND b.agent = o.agent
			AND b.n < o.n), 0), o.n
			FROM owner_changes o WHERE o.agent_id NOT IN (SELECT id FROM agents)
			UNION ALL -- the row that records who received it stays, and that of the erasure may lie in an archive
			SELECT o.to_owner, o.agent, o.n, o.n + 1 FROM owner_changes o WHERE o.agent_id NOT IN (SELECT id FROM agents)
			UNION ALL -- an archive has no agents, and says which were erased after its last row
			SELECT json_extract(e.value, '$[0]'), json_extract(e.value, '$[1]'), 0, json_extract(e.value, '$[2]') FROM meta m, json_each(m.value) e
			WHERE m.key = 'erased_later' AND NOT EXISTS (SELECT 1 FROM agents)
		), erased AS MATERIALIZED (SELECT * FROM erasures)
		SELECT a.n FROM acts a LEFT JOIN places p ON p.id = a.place
		WHERE a.beside IS NOT NULL AND a.n <= ? AND NOT EXISTS (SELECT 1 FROM act_texts t WHERE t.n = a.n)
		AND NOT EXISTS (SELECT 1 FROM erased e WHERE e.owner = p.owner AND e.agent = p.agent AND a.n > e.after AND a.n <= e.upto) LIMIT 1000`, v.read)
	for _, n := range missing {
		v.found("audit_text", fmt.Sprintf("row %d", n), "its detail is missing, and no erasure removed it")
	}
	return v.met(ctx, "acts", err)
}
