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

// How often bytes are counted, and how.
const (
	countEvery = 10 * time.Second // the shortest time between two counts
	countShare = 50               // counting takes at most one part in so many of the time
	countAtOne = 100              // how many runs one query counts
	countAnew  = time.Hour        // after this time all runs are counted again
)

// quota counts regularly how much the engine holds for the principals who own agents here.
// It lets the store refuse writes that add something for a principal who has used up his
// quota. It never stops a batch, because all principals of a host share its mark. It counts
// only runs that have changed since the last count, on a connection of its own.
type quota struct {
	limit int64
	line
	ids    func() *fleet.Identities
	owners func(context.Context) (map[string]string, error) // returns the owners of the agents of this host
	full   func(map[string]*ckpt.Error)                     // is called with those who have used up their quota
	log    *slog.Logger

	known map[string]counted
	began time.Time // when the first entry of known was counted

	mu      sync.Mutex
	used    []fleet.PrincipalUsed
	at      time.Time // of the last count
	problem failing
}

// counted is what is known about a run: its bytes, and the version that they belong to.
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

// count counts once, and tells the store who has used up his quota.
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

// principals maps the principal of each owner of an agent of this host to that owner.
func (q *quota) principals(ctx context.Context) (map[string]string, error) {
	owners, err := q.owners(ctx)
	ids, all := q.ids(), map[string]string{}
	for _, owner := range owners {
		all[ids.Principal(owner)] = owner
	}
	return all, err
}

// bytes counts the runs that have changed, and returns how many bytes each principal has.
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

// countRuns counts runs. If a run changes meanwhile, it keeps its version from before, so
// it is counted again the next time.
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

// tell keeps how much each principal has, and lets the store refuse those who have used up
// their quota.
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

// Usage returns the last count. A nil quota counts nothing.
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

// note logs a failure if it is new. The last count stays in force.
func (q *quota) note(err error) {
	if q.problem.news(err) {
		q.log.Warn("what the fleet's engine has of each principal cannot be counted; the last count stays in force",
			"error", err)
	}
}

// FleetUsage returns how much the engine holds for principals. An administrator sees all
// owners of agents here, a user sees himself. It does not ask the engine.
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
