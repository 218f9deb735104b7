package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Register registers this host, and returns the engine's id and the engine's mark of
// this host's database.
func (e *Engine) Register(ctx context.Context, h fleet.Host) (id string, m fleet.Mark, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	meta, err := e.meta(ctx)
	if err != nil {
		return "", m, err
	}
	if why := fits(meta); why != "" {
		return "", m, fmt.Errorf("%w: %s", ErrSchema, why)
	}
	e.before = 0
	if err := e.conn.QueryRow(ctx, lookBack, h.DB).Scan(&e.before); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", m, told(err)
	}
	b := &pgx.Batch{}
	b.Queue(putHost, h.DB, h.Name, h.Version, h.Schema)
	b.Queue(putMark, h.DB)
	b.Queue(word, h.DB)
	if err := e.sendWord(ctx, b, nil); err != nil {
		return "", m, err
	}
	err = e.conn.QueryRow(ctx, getMark, h.DB).Scan(&m.N, &m.Hash)
	return meta["engine_id"], m, told(err)
}

// Beat tells the engine that this host is alive and has nothing to ship.
func (e *Engine) Beat(ctx context.Context, db string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(word, db)
	b.Queue(needMember, db)
	return e.sendWord(ctx, b, nil)
}

// sendWord sends a batch in which moveMark or word returns how often the engine has
// heard from the database. It keeps that number once the engine has acknowledged the
// batch.
func (e *Engine) sendWord(ctx context.Context, b *pgx.Batch, each func(i int, rows pgx.Rows) error) error {
	var heard int64
	err := e.send(ctx, b, func(i int, rows pgx.Rows) error {
		switch sql := b.QueuedQueries[i].SQL; {
		case sql == moveMark, sql == word:
			return rows.Scan(&heard)
		case each == nil:
			return nil
		}
		return each(i, rows)
	})
	if err == nil {
		e.heard = heard
	}
	return err
}

// send sends statements as one pipeline and one transaction. each is called with the
// rows of each statement. After an error the connection is closed; the caller registers
// again to find out what happened.
func (e *Engine) send(ctx context.Context, b *pgx.Batch, each func(i int, rows pgx.Rows) error) error {
	e.warned.Store(false)
	standbys := -1 // the index of the statement that asks for them: only PostgreSQL itself can have none
	if e.Profile() == fleet.ProfilePostgres {
		standbys = b.Len()
		b.Queue(showStandbys)
	}
	results := e.conn.SendBatch(ctx, b)
	err := e.read(results, b.Len(), func(i int, rows pgx.Rows) error {
		switch {
		case i == standbys:
			var names string
			err := rows.Scan(&names)
			e.alone = names == ""
			return err
		case each == nil:
			return nil
		}
		return each(i, rows)
	})
	if end := results.Close(); err == nil {
		err = end
	}
	if err != nil {
		e.Close()
	}
	switch {
	case codeOf(err) == "22012": // needMark, needRun and the like divide by the number of rows
		return ErrMoved
	case err != nil && codeOf(err) == "":
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return told(err)
	case e.warned.Load():
		return ErrUnknown
	}
	return nil
}

func (e *Engine) read(results pgx.BatchResults, n int, each func(int, pgx.Rows) error) error {
	for i := range n {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		for rows.Next() {
			if err := each(i, rows); err != nil {
				rows.Close()
				return err
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Ship sends a batch, and returns the runs that another host owns. The batch leaves
// these out. The mark moves with the batch. After ErrUnknown only the mark tells
// whether the engine has the batch.
func (e *Engine) Ship(ctx context.Context, db string, c *fleet.Changes) (fenced []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e.has.look(c)
	s := &shipping{db: db, changes: c, has: &e.has, Batch: &pgx.Batch{}}
	s.all()
	mine := map[string]bool{}
	err = e.sendWord(ctx, s.Batch, func(i int, rows pgx.Rows) error {
		if i != s.fence {
			return nil
		}
		var uid string
		err := rows.Scan(&uid)
		mine[uid] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	e.has.keep(c, mine)
	for i := range c.Runs {
		if r := &c.Runs[i]; !mine[r.UID] {
			fenced = append(fenced, fleet.RunName(r.Owner, r.Agent, r.Name))
		}
	}
	return fenced, nil
}

// shipping makes the statements of a batch.
type shipping struct {
	*pgx.Batch
	db      string
	changes *fleet.Changes
	has     *memory
	fence   int      // the statement that returns which runs are still this host's; -1 for none
	uids    []string // the uids of the runs, with their terms
	terms   []int64
}

func (s *shipping) all() {
	c := s.changes
	s.fence = -1
	s.Queue(moveMark, s.db, c.From.N, c.From.Hash, c.To.N, c.To.Hash)
	s.Queue(needMark, s.db, c.To.N, c.To.Hash)
	s.erasures()
	s.names()
	s.agents()
	if len(c.Runs) > 0 {
		s.runs()
		s.removals()
		s.segments()
		s.checkpoints()
		s.marks()
		s.rows()
	}
	s.journal()
}

// names removes what the engine has under names that now mean something else.
func (s *shipping) names() {
	var runs, agents struct{ owner, agent, run, uid []string }
	for _, n := range s.changes.Names {
		if uid, known := s.has.names[bare(n)]; known && uid == n.UID {
			continue
		}
		to := &runs
		if n.Run == "" {
			to = &agents
		}
		to.owner, to.agent, to.run, to.uid = append(to.owner, n.Owner), append(to.agent, n.Agent), append(to.run, n.Run), append(to.uid, n.UID)
	}
	if len(agents.uid) > 0 {
		for _, drop := range dropsOf(runsOfGoneAgents) {
			s.Queue(drop, s.db, agents.owner, agents.agent, agents.uid)
		}
		s.Queue(dropGoneAgents, s.db, agents.owner, agents.agent, agents.uid)
	}
	if len(runs.uid) > 0 {
		for _, drop := range dropsOf(goneRuns) {
			s.Queue(drop, s.db, runs.owner, runs.agent, runs.run, runs.uid)
		}
	}
}

func (s *shipping) agents() {
	var uid, owner, agent, doc, principal, takeover []string
	var key []*string
	for i := range s.changes.Agents {
		a := &s.changes.Agents[i]
		if s.has.agents[a.UID] == sent(a) {
			continue
		}
		uid, owner, agent, doc = append(uid, a.UID), append(owner, a.Owner), append(agent, a.Name), append(doc, a.Doc)
		principal, takeover, key = append(principal, a.Principal), append(takeover, a.Takeover), append(key, orNull(a.KeyID))
	}
	if len(uid) > 0 {
		s.Queue(putAgents, s.db, uid, owner, agent, doc, principal, takeover, key)
	}
}

func (s *shipping) runs() {
	var agentUID, owner, agent, run, status, updated, doc, principal []string
	var key []*string
	var asOf, seq, named []int64
	var released []*int64
	var fresh struct {
		uid, agentUID, owner, agent, run, principal []string
		term, named                                 []int64
	}
	for i := range s.changes.Runs {
		r := &s.changes.Runs[i]
		s.uids, s.terms = append(s.uids, r.UID), append(s.terms, r.Term)
		agentUID, owner, agent, run = append(agentUID, r.AgentUID), append(owner, r.Owner), append(agent, r.Agent), append(run, r.Name)
		if _, there := s.has.runs[r.UID]; r.Whole || !there {
			fresh.uid, fresh.agentUID, fresh.term = append(fresh.uid, r.UID), append(fresh.agentUID, r.AgentUID), append(fresh.term, r.Term)
			fresh.owner, fresh.agent, fresh.run = append(fresh.owner, r.Owner), append(fresh.agent, r.Agent), append(fresh.run, r.Name)
			fresh.principal, fresh.named = append(fresh.principal, r.Principal), append(fresh.named, bit(r.Named))
		}
		status, updated, doc = append(status, r.Status), append(updated, r.UpdatedAt), append(doc, r.Doc)
		asOf, seq = append(asOf, r.AsOf), append(seq, r.Seq)
		principal, key, released = append(principal, r.Principal), append(key, orNull(r.KeyID)), append(released, freed(r))
		named = append(named, bit(r.Named))
	}
	if len(fresh.uid) > 0 {
		s.Queue(makeRuns, s.db, fresh.uid, fresh.agentUID, fresh.owner, fresh.agent, fresh.run, fresh.term, fresh.principal, fresh.named)
	}
	s.fence = s.Len()
	s.Queue(setRuns, s.db, s.uids, s.terms, asOf, status, updated, seq, doc, agentUID, owner, agent, run, principal, key, released, named)
}

// freed returns 1 for a run that its owner has ended, and 0 for one that is running. It
// returns nil for all others: who has released such a run has done so until it begins again.
func freed(r *fleet.Run) *int64 {
	if !r.Ended() && r.Status != "running" {
		return nil
	}
	is := bit(r.Ended())
	return &is
}

// held queues a statement for those runs that this host still owns.
func (s *shipping) held(statement string, args ...any) {
	s.Queue(statement, append([]any{s.db, s.uids, s.terms}, args...)...)
}

// removals removes what was removed from the runs.
func (s *shipping) removals() {
	var whole, gone, trim, kept []string
	var terms, goneN, keptID []int64
	for i := range s.changes.Runs {
		r := &s.changes.Runs[i]
		if r.Whole {
			whole, terms = append(whole, r.UID), append(terms, r.Term)
			s.held(keepOnly, r.UID, some(r.Live))
		}
		for _, n := range r.Gone {
			gone, goneN = append(gone, r.UID), append(goneN, n)
		}
		if r.Trim {
			trim = append(trim, r.UID)
			for _, id := range r.Segments {
				kept, keptID = append(kept, r.UID), append(keptID, id)
			}
		}
		if r.TrimWrites {
			s.held(keepWrites, r.UID, append([]string{}, r.Writes...))
		}
		if first, there := s.has.runs[r.UID]; r.FirstEvent > 0 && (!there || first != r.FirstEvent) {
			s.held(dropEvents, r.UID, r.FirstEvent)
		}
	}
	if len(gone) > 0 {
		s.held(dropGone, gone, goneN)
	}
	if len(trim) > 0 {
		s.held(keepSegments, trim, append([]string{}, kept...), some(keptID))
	}
	if len(whole) > 0 {
		s.Queue(dropRows, s.db, whole, terms)
	}
}

// some returns an empty list instead of nil, which would become NULL.
func some(list []int64) []int64 {
	if list == nil {
		return []int64{}
	}
	return list
}

func (s *shipping) segments() {
	var uid []string
	var id, size []int64
	var data [][]byte
	var key []*string
	for i := range s.changes.Runs {
		r := &s.changes.Runs[i]
		for _, p := range r.Pieces {
			uid, id, size, data = append(uid, r.UID), append(id, p.ID), append(size, p.Size), append(data, p.Data)
			key = append(key, orNull(p.KeyID))
		}
	}
	if len(uid) > 0 {
		s.held(putSegments, uid, id, size, data, key)
	}
}

func (s *shipping) checkpoints() {
	var uid, id, kind, sha, doc []string
	var n, term, seq, suspect, size []int64
	var pieces, key []*string
	var body [][]byte
	for i := range s.changes.Runs {
		r := &s.changes.Runs[i]
		for _, c := range r.Checkpoints {
			uid, n, term, id, seq = append(uid, r.UID), append(n, c.N), append(term, r.Term), append(id, c.ID), append(seq, c.Seq)
			kind, suspect, sha, size = append(kind, c.Kind), append(suspect, bit(c.Suspect)), append(sha, c.SHA256), append(size, c.Size)
			pieces, body, doc = append(pieces, c.Pieces), append(body, c.Body), append(doc, c.Doc)
			key = append(key, orNull(c.KeyID))
		}
	}
	if len(uid) > 0 {
		s.held(putCheckpoints, uid, n, term, id, seq, kind, suspect, sha, size, pieces, body, doc, key)
	}
}

// orNull returns a pointer to a text, nil for "".
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// marks updates those columns of checkpoints that can change.
func (s *shipping) marks() {
	var uid, doc []string
	var n, suspect []int64
	for i := range s.changes.Runs {
		r := &s.changes.Runs[i]
		for _, c := range r.Marked {
			uid, n, suspect, doc = append(uid, r.UID), append(n, c.N), append(suspect, bit(c.Suspect)), append(doc, c.Doc)
		}
	}
	if len(uid) > 0 {
		s.held(markCheckpoints, uid, n, suspect, doc)
	}
}

func (s *shipping) rows() {
	var uid, kind, key, doc []string
	var sealed []*string
	var order []int64
	for i := range s.changes.Runs {
		r := &s.changes.Runs[i]
		for _, row := range r.Rows {
			uid, kind, key, order, doc = append(uid, r.UID), append(kind, row.Kind), append(key, row.Key), append(order, row.Order), append(doc, row.Doc)
			sealed = append(sealed, orNull(row.KeyID))
		}
	}
	if len(uid) > 0 {
		s.held(putRows, uid, kind, key, order, doc, sealed)
	}
}

func (s *shipping) journal() {
	var who, action, owner, agent, run, outcome, doc, hash []string
	var n, at []int64
	var texts, key []*string
	for i := range s.changes.Journal {
		j := &s.changes.Journal[i]
		n, at, who, action = append(n, j.N), append(at, j.At), append(who, j.Who), append(action, j.Action)
		owner, agent, run, outcome = append(owner, j.Owner), append(agent, j.Agent), append(run, j.Run), append(outcome, j.Outcome)
		doc, texts, hash = append(doc, j.Doc), append(texts, j.Texts), append(hash, j.Hash)
		key = append(key, orNull(j.KeyID))
	}
	if len(n) > 0 {
		s.Queue(putAudit, s.db, n, at, who, action, owner, agent, run, outcome, doc, texts, hash, key)
	}
	var upto, after []int64
	var erasedOwner, erasedAgent []string
	for _, e := range s.changes.Erased {
		upto, erasedOwner, erasedAgent = append(upto, e.N), append(erasedOwner, e.Owner), append(erasedAgent, e.Agent)
		after = append(after, e.After)
	}
	if len(upto) > 0 {
		s.Queue(eraseTexts, s.db, upto, erasedOwner, erasedAgent, after)
		s.Queue(putErasures, s.db, upto, erasedOwner, erasedAgent)
	}
}

// IsUnknown reports whether an error leaves open what happened to a batch.
func IsUnknown(err error) bool { return errors.Is(err, ErrUnknown) }
