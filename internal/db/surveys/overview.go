package surveys

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// overviewKey says who asked for which overview.
type overviewKey struct {
	owner string
	query survey.OverviewQuery // without the ETag
}

// answered is what an overview was made from, and its ETag. While there are no new commits and the
// axis is the same, the content is the same.
type answered struct {
	commits   int64
	elsewhere string
	from      time.Time
	etag      string
}

// remembered is what an overview was made from, with the processes that it shows as waiting for an answer: no commit says
// when one of them ends.
type remembered struct {
	answered
	waiting []ckpt.Ref
}

// waits finds the processes that wait for an answer, and keeps what describes those that live.
type waits struct {
	core  *ledger.Core
	alive []ckpt.Ref
}

func (w *waits) pid(waiting ckpt.Ref) int {
	pid := w.core.WaitingPID(waiting)
	if pid != 0 {
		w.alive = append(w.alive, waiting)
	}
	return pid
}

// maxAnswered is how many answers are remembered.
const maxAnswered = 64

// Overview returns what needs a person, the runs on one time axis, and counts. same says that the
// answer still has the ETag that the query names.
func (s *Surveys) Overview(ctx context.Context, sc ckpt.Scope, f survey.OverviewQuery) (v *survey.Overview, same bool, err error) {
	if err := f.Check(); err != nil {
		return nil, false, err
	}
	sc = everybodys(sc)
	s.core.AuditRead(sc, "read_overview", "", "")
	now := ckpt.At(s.core.Opt.Now())
	x := overviewAxis(now.Time, f.Span)
	key := overviewKey{sc.Whose(), f}
	key.query.ETag = ""
	commits := s.core.Commits.Load() // before reading, so that commits in the meantime count as later
	elsewhere := s.core.ElsewhereIDs()
	if s.unchanged(key, answered{commits, elsewhere, x.from, f.ETag}) {
		return nil, true, nil
	}
	waiting := waits{core: s.core}
	v = &survey.Overview{From: ckpt.At(x.from), To: x.to(), BinMS: x.bin.Milliseconds()}
	err = s.core.Reading(ctx, func(q *sqlx.Tx) error {
		n := needs{ctx: ctx, q: q, owner: sc.Whose(), now: now, waits: waiting.pid, elsewhere: func(run int64) bool {
			_, is := s.core.OtherOwner(run)
			return is
		}}
		if err := n.read(); err != nil {
			return err
		}
		v.Needs, v.MoreNeeds, v.Counts.Needs = n.rows()
		if err := counts(ctx, q, sc.Whose(), &v.Counts); err != nil {
			return err
		}
		l := lines{ctx: ctx, q: q, owner: sc.Whose(), axis: x, now: now, limit: f.Limit, waits: waiting.pid}
		v.Runs, v.MoreRuns, err = l.read()
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if v.ETag, err = s.etag(v); err != nil {
		return nil, false, err
	}
	s.remember(key, remembered{answered{commits, elsewhere, x.from, v.ETag}, waiting.alive})
	if f.ETag == v.ETag {
		return nil, true, nil
	}
	v.At = now
	return v, false, nil
}

// overviewAxis ends at the end of the bin that contains now, so that it stays the same during that
// bin.
func overviewAxis(now time.Time, span ckpt.Duration) axis {
	if span == 0 {
		span = survey.DefaultSpan
	}
	bin := (time.Duration(span) / survey.OverviewBins).Round(time.Millisecond)
	return axis{now.Truncate(bin).Add(bin - survey.OverviewBins*bin).UTC(), bin, survey.OverviewBins}
}

// etag names a content. It includes a secret, so that nobody can guess from it what other owners
// have.
func (s *Surveys) etag(v *survey.Overview) (string, error) {
	mac := hmac.New(sha256.New, s.core.Secret("overview"))
	if err := json.NewEncoder(mac).Encode(v); err != nil {
		return "", ckpt.Wrap(ckpt.CodeInternal, err, "the overview cannot be written as JSON")
	}
	return hex.EncodeToString(mac.Sum(nil)[:16]), nil
}

func (s *Surveys) unchanged(key overviewKey, a answered) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.same[key]
	return a.etag != "" && was.answered == a &&
		!slices.ContainsFunc(was.waiting, func(w ckpt.Ref) bool { return s.core.WaitingPID(w) == 0 })
}

func (s *Surveys) remember(key overviewKey, a remembered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.same) >= maxAnswered {
		clear(s.same)
	}
	s.same[key] = a
}

// counts counts what an owner has.
func counts(ctx context.Context, q *sqlx.Tx, owner string, c *survey.Counts) error {
	c.Statuses, c.Findings = map[ckpt.RunStatus]int64{}, map[ckpt.Severity]int64{}
	if err := q.GetContext(ctx, &c.Agents, `SELECT count(*) FROM agents WHERE owner = ?1 OR ?1 = '*'`, owner); err != nil {
		return err
	}
	var statuses []struct {
		Status ckpt.RunStatus `db:"status"`
		Count  int64          `db:"count"`
	}
	if err := q.SelectContext(ctx, &statuses, countRuns(owner), owner); err != nil {
		return err
	}
	for _, row := range statuses {
		c.Statuses[row.Status] = row.Count
		c.Runs += row.Count
	}
	var findings []struct {
		Severity ckpt.Severity `db:"severity"`
		Count    int64         `db:"count"`
	}
	if err := q.SelectContext(ctx, &findings, countFindings(owner), owner); err != nil {
		return err
	}
	for _, row := range findings {
		c.Findings[row.Severity] = row.Count
	}
	return nil
}

// countRuns scans an index of all runs, or looks up the runs of an owner's agents.
func countRuns(owner string) string {
	if owner == ckpt.AllOwners {
		return `SELECT status, count(*) AS count FROM runs WHERE ?1 <> '' GROUP BY status`
	}
	return `SELECT r.status, count(*) AS count FROM agents a CROSS JOIN runs r ON r.agent_id = a.id WHERE a.owner = ?1 GROUP BY r.status`
}

func countFindings(owner string) string {
	const open = `FROM findings f INDEXED BY findings_open CROSS JOIN runs r ON r.id = f.run_id
		CROSS JOIN agents a ON a.id = r.agent_id WHERE f.closed IS NULL AND f.rule <> 'secret'`
	if owner == ckpt.AllOwners {
		return `SELECT f.severity, count(*) AS count FROM findings f INDEXED BY findings_open WHERE f.closed IS NULL AND f.rule <> 'secret' AND ?1 <> '' GROUP BY f.severity`
	}
	return `SELECT f.severity, count(*) AS count ` + open + ` AND a.owner = ?1 GROUP BY f.severity`
}
