package ledger

import (
	"context"
	"strings"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Runs are found without an index that a save would have to maintain. Each part of a filter has an
// index of its own that gives the runs that match the part. If one of them gives few runs, those
// are read and sorted. If all give many, the runs are scanned in the requested order: the page is
// full after a few.

// fewRuns is the most runs that are read and sorted rather than scanned in order.
const fewRuns = 1000

// runChoice is a part of a filter.
type runChoice struct {
	condition string // a condition on r and a
	ids       string // a query for the matching runs by an index; "" if there is none
	args      []any  // arguments of each of the two
}

// runChoices are the parts of a filter.
func runChoices(owner string, agentID int64, f *ckpt.RunFilter) (list []runChoice) {
	choose := func(condition, ids string, args ...any) { list = append(list, runChoice{condition, ids, args}) }
	if agentID != 0 {
		choose(`r.agent_id = ?`, `SELECT id FROM runs WHERE agent_id = ?`, agentID)
	} else if owner != ckpt.AllOwners {
		choose(`a.owner = ?`, `SELECT r.id FROM agents a JOIN runs r ON r.agent_id = a.id WHERE a.owner = ?`, owner)
	}
	switch f.Status {
	case "":
	case ckpt.RunStarting, ckpt.RunRunning: // the table has one status for both
		choose(ShownStatus+` = ?`, `SELECT id FROM runs WHERE status = 'running' AND ? <> ''`, string(f.Status))
	default:
		choose(`r.status = ?`, `SELECT id FROM runs WHERE status = ?`, string(f.Status))
	}
	if f.Workflow != "" {
		choose(`r.workflow = ?`, `SELECT id FROM runs WHERE workflow = ?`, f.Workflow)
	}
	for key, value := range f.Labels {
		choose(`EXISTS (SELECT 1 FROM run_terms t WHERE t.term = ? AND t.is_label = 1 AND t.run_id = r.id)`,
			`SELECT run_id FROM run_terms WHERE term = ? AND is_label = 1`, key+"="+value)
	}
	for _, word := range ckpt.GoalWords(f.Goal) {
		if word.Prefix {
			choose(`EXISTS (SELECT 1 FROM run_terms t WHERE t.run_id = r.id AND t.term >= ? AND t.term < ? AND t.is_label = 0)`,
				`SELECT DISTINCT run_id FROM run_terms WHERE term >= ? AND term < ? AND is_label = 0`, word.Text, word.Text+"\U0010ffff")
		} else {
			choose(`EXISTS (SELECT 1 FROM run_terms t WHERE t.term = ? AND t.is_label = 0 AND t.run_id = r.id)`,
				`SELECT run_id FROM run_terms WHERE term = ? AND is_label = 0`, word.Text)
		}
	}
	if since, until := f.Since.String(), f.Until.String(); since != "" || until != "" {
		if until == "" {
			until = "9999"
		}
		choose(`r.started_at >= ? AND r.started_at < ?`, `SELECT id FROM runs WHERE started_at >= ? AND started_at < ?`, since, until)
	}
	if f.Severity != "" {
		worse := map[ckpt.Severity]string{
			ckpt.SeverityInfo: `('info', 'warn', 'critical')`, ckpt.SeverityWarn: `('warn', 'critical')`, ckpt.SeverityCritical: `('critical')`,
		}[f.Severity]
		choose(`EXISTS (SELECT 1 FROM findings f WHERE f.run_id = r.id AND f.dismissed_at IS NULL AND f.severity IN `+worse+`)`,
			`SELECT DISTINCT run_id FROM findings WHERE dismissed_at IS NULL AND severity IN `+worse)
	}
	return list
}

// searchedGoal is how many characters of a goal are searched.
const searchedGoal = 2000

// IndexRun makes a run findable by its present labels and goal. Whatever changes one of them calls it.
func (tx *Tx) IndexRun(id int64) error {
	var run struct {
		Goal   ckpt.Ref    `db:"goal"`
		Labels ckpt.Labels `db:"labels"`
	}
	if _, err := tx.Get(&run, `SELECT substr(goal, 1, ?) AS goal, labels FROM runs WHERE id = ?`, searchedGoal, id); err != nil {
		return err
	}
	if err := tx.Exec(`DELETE FROM run_terms WHERE run_id = ?`, id); err != nil {
		return err
	}
	const insert = `INSERT OR IGNORE INTO run_terms (term, is_label, run_id) VALUES (?, ?, ?)`
	for key, value := range run.Labels {
		if err := tx.Exec(insert, key+"="+value, 1, id); err != nil {
			return err
		}
	}
	for _, word := range ckpt.GoalWords(string(run.Goal)) {
		if err := tx.Exec(insert, word.Text, 0, id); err != nil {
			return err
		}
	}
	return nil
}

// Runs lists runs of one agent or of all of the owner's.
func (s *Core) Runs(ctx context.Context, sc ckpt.Scope, f ckpt.RunFilter) (*ckpt.RunPage, error) {
	limit, err := PageSizeOf(f.Limit)
	if err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	at, id, err := s.Numbers(sc).readRun(f.Before, f.Sort)
	if err != nil {
		return nil, err
	}
	agentID := int64(0)
	if f.Agent != "" {
		agent, err := s.FindAgent(ctx, sc, f.Agent)
		if err != nil {
			return nil, err
		}
		agentID = agent.ID
	}
	if sc.Admin && sc.Target == "" && f.Agent == "" {
		sc.Target = ckpt.AllOwners
	}
	find := &runFinder{choices: runChoices(sc.Whose(), agentID, &f), lives: f.Lives, sort: f.Sort, at: at, id: id, limit: limit + 1}
	var rows []ReadRun
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		query, err := find.page(ctx, q)
		if err != nil || query == nil {
			return err
		}
		return q.SelectContext(ctx, &rows, query.Text.String(), query.Args...)
	})
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	page := &ckpt.RunPage{Runs: []ckpt.Run{}}
	foreign := false
	for i := range rows[:min(limit, len(rows))] {
		page.Runs = append(page.Runs, *s.Shown(&rows[i], ckpt.At(s.Opt.Now())))
		foreign = foreign || rows[i].Owner != sc.Caller.Owner
	}
	if len(rows) > limit {
		page.Next = s.Numbers(sc).writeRun(&rows[limit-1], f.Sort)
	}
	if foreign {
		s.AuditRead(sc, "list_runs", f.Agent, "")
	}
	return page, nil
}

// runFinder finds a page of runs.
type runFinder struct {
	choices []runChoice
	lives   bool // earlier lives too
	sort    ckpt.RunSort
	at      string // the cursor
	id      int64
	limit   int
}

// page is the query for a page, nil if the page is empty. Runs are first chosen by their ids, so
// that only those of the page are read whole.
func (f *runFinder) page(ctx context.Context, q *sqlx.Tx) (*ListQuery, error) {
	query, args, err := f.query(ctx, q)
	if err != nil || query == "" {
		return nil, err
	}
	l := &ListQuery{Args: args}
	l.Text.WriteString(`SELECT ` + readRunColumns + readRunTables + `WHERE r.id IN (SELECT id
		FROM (` + query + `)) ORDER BY r.` + f.order() + ` DESC, r.id DESC`)
	return l, nil
}

// order is the column to sort by.
func (f *runFinder) order() string {
	if f.sort == ckpt.SortStarted {
		return "started_at"
	}
	return "updated_at"
}

// query returns the query for the ids of the page, "" if there are none.
func (f *runFinder) query(ctx context.Context, q *sqlx.Tx) (string, []any, error) {
	few, least := "", fewRuns+1
	var fewArgs []any
	for _, c := range f.choices {
		var n int
		if err := q.GetContext(ctx, &n, `SELECT count(*) FROM (`+c.ids+` LIMIT 0 + ?)`, append(append([]any{}, c.args...), least)...); err != nil {
			return "", nil, err
		}
		if n == 0 {
			return "", nil, nil
		}
		if n < least {
			few, fewArgs, least = c.ids, c.args, n
		}
	}
	if few != "" {
		query, args := f.chosen(`runs r`, `r.id IN (`+few+`)`, fewArgs...)
		return query, args, nil
	}
	if f.sort == ckpt.SortStarted {
		query, args := f.chosen(`runs r INDEXED BY runs_started`, `1`)
		return query, args, nil
	}
	return f.lastChanged()
}

// lastChanged scans the runs at rest in the order of their last change, and sorts the running ones:
// a save changes their order, and no index follows it.
func (f *runFinder) lastChanged() (string, []any, error) {
	rest, args := f.chosen(`runs r INDEXED BY runs_at_rest`, `r.status <> 'running'`)
	running, more := f.chosen(`runs r INDEXED BY runs_by_status`, `r.status = 'running'`)
	query := `SELECT id FROM (SELECT * FROM (` + rest + `) UNION ALL SELECT * FROM (` + running + `)) ORDER BY at DESC, id DESC LIMIT 0 + ?`
	return query, append(append(args, more...), f.limit), nil
}

// chosen is the query for the first ids that match all parts of the filter.
func (f *runFinder) chosen(from, where string, args ...any) (string, []any) {
	order := f.order()
	conditions := []string{where, `r.` + order + ` <= ?`, `(r.` + order + `, r.id) < (?, ?)`}
	all := append(append([]any{}, args...), f.at, f.at, f.id)
	if !f.lives {
		conditions = append(conditions, `r.ago = 0`)
	}
	for _, c := range f.choices {
		conditions = append(conditions, c.condition)
		all = append(all, c.args...)
	}
	return `SELECT r.id, r.` + order + ` AS at FROM ` + from + ` CROSS JOIN agents a ON a.id = r.agent_id
		WHERE ` + strings.Join(conditions, ` AND `) + ` ORDER BY r.` + order + ` DESC, r.id DESC LIMIT 0 + ?`, append(all, f.limit)
}
