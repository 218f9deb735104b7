package ledger

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/jmoiron/sqlx"
)

// loadChainKey reads the secret in each hash of the audit log, without which nobody who sees only
// hashes can guess their inputs.
func (s *Core) loadChainKey(ctx context.Context) error {
	return s.Engine.Writing().GetContext(ctx, &s.chainKey, `SELECT value FROM meta WHERE key = 'chain_key'`)
}

// ViewOf is the SQL of a view of the schema, to be put before a query. The query then reads this
// view, whatever the database says the view is.
func ViewOf(name string) string {
	text := strings.TrimSuffix(strings.TrimSpace(Views()[name]), ";")
	return strings.Replace(strings.Replace(text, "CREATE VIEW ", "WITH ", 1), ") AS\n", ") AS (\n", 1) + ") "
}

// Link is a row of the chain: its hash, and the input of the hash.
type Link struct {
	N     int64  `db:"n"`
	Input string `db:"input"`
	Hash  string `db:"hash"`
}

// Holds says whether the hash matches the input.
func (l *Link) Holds() bool {
	return hex.EncodeToString(sum([]byte(l.Input))) == l.Hash
}

// looksBack is how many of the newest rows are checked if checking all would take too long.
const looksBack = 4096

// brokenLink returns the first row of the audit log after one whose hash does not match its
// contents, 0 if there is none.
func brokenLink(ctx context.Context, q sqlx.QueryerContext, after int64) (n int64, err error) {
	rows, err := q.QueryxContext(ctx, ViewOf("audit_chain")+`SELECT n, input, hash FROM audit_chain
		WHERE n > ? AND n > (SELECT coalesce(max(to_n), 0) FROM audit_archives)
		ORDER BY n`, after)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var link Link
		if err := rows.StructScan(&link); err != nil {
			return 0, err
		}
		if !link.Holds() {
			return link.N, nil
		}
	}
	return 0, rows.Err()
}
