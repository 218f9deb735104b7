package host

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// How bytes are counted.
const (
	countEvery = 10 * time.Second // at most so often
	countShare = 50               // and at most this part of the time is spent on it
	countAtOne = 100              // runs in one question to the engine
	countAnew  = time.Hour        // after this time nothing counts as known
)

// quota counts now and then what the engine has of the principals who own agents here, and
// lets the store refuse what adds to one who has used up his quota. It never stops
// a batch: all principals of a host share its mark. Only runs that have changed since the
// last count are counted, on a connection of its own.
type quota struct {
	limit int64
	line
	ids    func() *fleet.Identities
	owners func(context.Context) (map[string]string, error) // of the agents of this host
	full   func(map[string]*ckpt.Error)                     // hears who has used up his quota
	log    *slog.Logger

	known map[string]counted
	began time.Time // when known began to be known

	mu      sync.Mutex
	used    []fleet.PrincipalUsed
	at      time.Time // of the last count
	problem failing
}

// counted is what is known of a run: its bytes, as of a version.
type counted struct {
	fleet.RunVersion
	bytes int64
}

// Run counts until ctx ends.
func (q *quota) Run(ctx context.Context) error {
	defer q.hangUp()
	return periodic.Run(ctx, func(ctx context.Context) time.Duration {
		began := time.Now()
		err := q.count(ctx)
		if ctx.Err() != nil {
			return 0
		}
		q.note(err)
		if err != nil {
			q.hangUp()
		}
		return max(countEvery, countShare*time.Since(began))
	})
}

// count counts once, and tells who has used up his quota.
func (q *quota) count(ctx context.Context) error {
	owners, err := q.principals(ctx)
	if err != nil {
		return err
	}
	if err := q.dial(ctx); err != nil {
		return err
	}
	if time.Since(q.began) > countAnew {
		q.known, q.began = map[string]counted{}, time.Now()
	}
	bytes, err := q.bytes(ctx, slices.Sorted(maps.Keys(owners)))
	if err != nil {
		return err
	}
	q.tell(owners, bytes)
	return nil
}

// principals are those of the owners of this host's agents, each with that owner.
func (q *quota) principals(ctx context.Context) (map[string]string, error) {
	owners, err := q.owners(ctx)
	ids, all := q.ids(), map[string]string{}
	for _, owner := range owners {
		all[ids.Principal(owner)] = owner
	}
	return all, err
}

// bytes counts the runs that have changed, and answers how much each principal has.
func (q *quota) bytes(ctx context.Context, principals []string) (map[string]int64, error) {
	runs, err := q.engine.RunVersions(ctx, principals)
	if err != nil {
		return nil, err
	}
	var changed []fleet.RunVersion
	there := make(map[string]counted, len(runs))
	for _, r := range runs {
		if c, is := q.known[r.UID]; is && c.RunVersion == r {
			there[r.UID] = c
		} else {
			changed = append(changed, r)
		}
	}
	for part := range slices.Chunk(changed, countAtOne) {
		if err := q.countRuns(ctx, part, there); err != nil {
			return nil, err
		}
	}
	q.known = there
	bytes := map[string]int64{}
	for _, c := range there {
		bytes[c.Principal] += c.bytes
	}
	return bytes, nil
}

// countRuns counts runs. A run that changes meanwhile keeps the version from before, and
// is counted again the next time.
func (q *quota) countRuns(ctx context.Context, runs []fleet.RunVersion, into map[string]counted) error {
	uids := make([]string, len(runs))
	for i := range runs {
		uids[i] = runs[i].UID
	}
	bytes, err := q.engine.BytesOf(ctx, uids)
	for _, r := range runs {
		if n, is := bytes[r.UID]; is {
			into[r.UID] = counted{r, n}
		}
	}
	return err
}

// tell keeps what each principal has, and lets the store refuse those who are full.
func (q *quota) tell(owners map[string]string, bytes map[string]int64) {
	used, full := []fleet.PrincipalUsed{}, map[string]*ckpt.Error{}
	for principal, owner := range owners {
		p := fleet.PrincipalUsed{Principal: principal, Owner: owner, Bytes: bytes[principal]}
		p.Full = p.Bytes >= q.limit
		if p.Full {
			full[owner] = &ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: countEvery, Message: p.Refusal(q.limit)}
		}
		used = append(used, p)
	}
	slices.SortFunc(used, func(a, b fleet.PrincipalUsed) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Principal, b.Principal))
	})
	q.full(full)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used, q.at = used, time.Now()
}

// Usage is what was counted last. A nil quota counts nothing.
func (q *quota) Usage() *fleet.Usage {
	u := &fleet.Usage{CountedAgo: -1, Principals: []fleet.PrincipalUsed{}}
	if q == nil {
		return u
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u.Limit = q.limit
	if !q.at.IsZero() {
		u.Principals, u.CountedAgo = append(u.Principals, q.used...), time.Since(q.at).Round(time.Millisecond).Seconds()
	}
	return u
}

// note logs what is new about failures. The last count stays in force.
func (q *quota) note(err error) {
	if q.problem.news(err) {
		q.log.Warn("what the fleet's engine has of each principal cannot be counted; the last count stays in force",
			"error", err)
	}
}

// FleetUsage says how much the engine has of principals: an administrator sees those of all
// owners of agents here, a user himself. It does not ask the engine.
func (v *view) FleetUsage(_ context.Context, sc ckpt.Scope) (*fleet.Usage, error) {
	u := v.shipper.quota.Usage()
	switch {
	case !sc.Admin:
		return u.Of(sc.Owner), nil
	case sc.Target != "" && sc.Target != ckpt.AllOwners:
		return u.Of(sc.Target), nil
	}
	return u, nil
}
