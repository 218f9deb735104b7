package client

import "context"

type reasonKey struct{}

// WithReason adds a reason for the audit log to the calls that are made with the context:
// changes and deletions of checkpoints, policies, prunes, registered runs, claims, and decisions about strands. The other
// calls have a reason in their request, or none.
func WithReason(ctx context.Context, reason string) context.Context {
	if reason == "" {
		return ctx
	}
	return context.WithValue(ctx, reasonKey{}, reason)
}

// because adds the reason of a context to a request that accepts one.
func (a *ask) because(ctx context.Context) {
	reason, _ := ctx.Value(reasonKey{}).(string)
	a.query.add("reason", reason)
}
