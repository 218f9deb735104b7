package ckptsidecar

import "context"

// askingKey is the key of what WithAsking adds.
type askingKey struct{}

// WithAsking adds to the context of a write how to learn whether anybody still
// waits for its answer. A write that has begun goes on when its client hangs up;
// what is only made ready for it, and may be costly, ends.
func WithAsking(ctx context.Context, asking func() (context.Context, context.CancelFunc)) context.Context {
	return context.WithValue(ctx, askingKey{}, asking)
}

// Asking is a context that ends when nobody waits for the answer any more. Where
// nobody has said how to learn that, it ends with ctx.
func Asking(ctx context.Context) (context.Context, context.CancelFunc) {
	if asking, ok := ctx.Value(askingKey{}).(func() (context.Context, context.CancelFunc)); ok {
		return asking()
	}
	return context.WithCancel(ctx)
}
