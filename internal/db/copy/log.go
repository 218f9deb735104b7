package copy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// stretch says which acts about an owner's agent are about the agent of an export: not those before an erasure, and
// not those about an agent of the same name that was given away.
type stretch struct {
	Owner string `db:"owner"`
	Agent string `db:"agent"`
	After int64  `db:"after"`
	To    int64  `db:"upto"`
}

// MarshalJSON makes an array for json_each.
func (s stretch) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{s.Owner, s.Agent, s.After, s.To})
}

const selectStretches = `WITH own (owner, agent, upto, since) AS (
		SELECT from_owner, agent, n, coalesce((SELECT max(b.n) FROM owner_changes b WHERE b.agent_id = o.agent_id AND b.n < o.n), 0)
		FROM owner_changes o WHERE o.agent_id = ?1
		UNION ALL SELECT a.owner, a.name, 1 << 62, coalesce((SELECT max(n) FROM owner_changes WHERE agent_id = ?1), 0) FROM agents a WHERE a.id = ?1)
	SELECT owner, agent, upto, max(since,
		coalesce((SELECT max(b.n) FROM owner_changes b WHERE b.from_owner = own.owner AND b.agent = own.agent AND b.n < own.upto), 0),
		coalesce((SELECT max(x.n) FROM places p JOIN acts x ON x.place = p.id
			WHERE p.owner = own.owner AND p.agent = own.agent AND p.run = '' AND x.action = 'erase' AND x.outcome IS NULL AND x.n < own.upto), 0)) AS after
	FROM own`

// selectActs selects the acts of the stretches in ?1, those that record the checkpoints of the runs in ?2 and the
// changes of the owner of agent ?4, and those that one of these names. If ?3 is not "", it is the only run.
const selectActs = `WITH mine (n, gone, parent, more) AS MATERIALIZED (
		SELECT a.n, a.gone, a.parent, a.more FROM json_each(?1) s JOIN places p ON p.owner = s.value ->> 0 AND p.agent = s.value ->> 1
			AND (?3 = '' OR p.run IN ('', ?3)) JOIN acts a ON a.place = p.id AND a.n > s.value ->> 2 AND a.n <= s.value ->> 3
		UNION SELECT a.n, a.gone, a.parent, a.more FROM checkpoints c JOIN acts a ON a.n = c.n WHERE c.run_id IN (SELECT value FROM json_each(?2))
		UNION SELECT a.n, a.gone, a.parent, a.more FROM owner_changes o JOIN acts a ON a.n IN (o.n, o.n + 1) WHERE o.agent_id = ?4)
	SELECT n FROM acts WHERE n IN (SELECT n FROM mine UNION SELECT gone FROM mine UNION SELECT parent FROM mine
		UNION SELECT e.value ->> 0 FROM mine, json_each(mine.more, '$.removed') e WHERE mine.more IS NOT NULL) ORDER BY n`

// actsOf finds the acts that an export of an agent has.
func (x *exporting) actsOf(agent *ledger.AgentRow, list []int64) (rows []int64, err error) {
	var stretches []stretch
	if err := x.q.SelectContext(x.ctx, &stretches, selectStretches, agent.ID); err != nil {
		return nil, err
	}
	base, _, _ := strings.Cut(x.request.Run, "~")
	return rows, x.q.SelectContext(x.ctx, &rows, selectActs, jsonList(stretches), jsonList(list), base, agent.ID)
}

// log copies acts, the texts beside them, and the places in them.
func (x *exporting) log(rows []int64) error {
	list := jsonList(rows)
	for _, t := range []*table{acts, actTexts} {
		if err := x.rows(t, 0, 1, 0, list); err != nil {
			return err
		}
	}
	return x.rows(places, 0, 1, 0, jsonList(slices.Sorted(maps.Keys(x.numbers[placeNo]))))
}

// jsonList is a list for json_each.
func jsonList[T any](list []T) string {
	if list == nil {
		return "[]"
	}
	return string(asJSON(list))
}

// chainAtOnce is how many acts are hashed in memory.
const chainAtOnce = 1000

// chain computes the hashes of the acts in a file, which has its own secret.
func chain(ctx context.Context, to *sqlx.Conn) error {
	update, err := to.PreparexContext(ctx, `UPDATE acts SET hash = ? WHERE n = ?`)
	if err != nil {
		return err
	}
	defer update.Close()
	last, before := int64(0), ""
	for {
		var links []ledger.Link
		err := to.SelectContext(ctx, &links, ledger.ViewOf("audit_chain")+`SELECT n, input, hash FROM audit_chain WHERE n > ? ORDER BY n LIMIT 0 + ?`,
			last, chainAtOnce)
		if err != nil {
			return err
		}
		if len(links) == 0 {
			return nil
		}
		for _, link := range links {
			input := link.Input[:strings.LastIndex(link.Input, `,"`)] + `,"` + before + `"]`
			sum := sha256.Sum256([]byte(input))
			if _, err := update.ExecContext(ctx, sum[:], link.N); err != nil {
				return err
			}
			last, before = link.N, hex.EncodeToString(sum[:])
		}
	}
}

// withoutRowid are the tables of agents whose rows stand in the order of their key.
var withoutRowid = map[*table]string{ownerChanges: "agent_id, n", runSegments: "run_id, n",
	events: "run_id, seq", graphWrites: "run_id, checkpoint, task, idx", treeFiles: "tree_id, path", contentUses: "used, used_by",
	checkpointTrees: "n, place"}

// Sum is the hash of all rows of an export.
func Sum(ctx context.Context, q sqlx.QueryerContext) (string, error) {
	var said string
	if err := sqlx.GetContext(ctx, q, &said, `SELECT value FROM meta WHERE key = ?`, keyExport); err != nil {
		return "", err
	}
	return digest(ctx, q, said, func(*table, []any) error { return nil })
}

// digest hashes what a file says about itself and all rows of its tables, and calls see with each row. It is no
// signature: it shows damage.
func digest(ctx context.Context, q sqlx.QueryerContext, said string, see func(*table, []any) error) (string, error) {
	sum := sha256.New()
	sum.Write([]byte(said))
	var b []byte
	for _, t := range tables {
		order := withoutRowid[t]
		if order == "" {
			order = "rowid"
		}
		sum.Write([]byte("\n" + t.name + "\n"))
		rows, err := q.QueryxContext(ctx, `SELECT `+t.list("", all)+` FROM `+t.name+` ORDER BY `+order)
		if err != nil {
			return "", err
		}
		for rows.Next() {
			values, err := rows.SliceScan()
			if err == nil {
				err = see(t, values)
			}
			if err != nil {
				_ = rows.Close()
				return "", err
			}
			b = b[:0]
			for _, v := range values {
				b = appendValue(b, v)
			}
			sum.Write(b)
		}
		if err := rows.Err(); err != nil {
			return "", err
		}
		_ = rows.Close()
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// appendValue writes a value so that no two values are written alike.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'n')
	case int64:
		return binary.AppendVarint(append(b, 'i'), v)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 'f'), math.Float64bits(v))
	case string:
		return append(binary.AppendUvarint(append(b, 't'), uint64(len(v))), v...)
	case []byte:
		return append(binary.AppendUvarint(append(b, 'b'), uint64(len(v))), v...)
	}
	return fmt.Append(append(b, '?'), v)
}
