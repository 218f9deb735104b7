package ckptsidecar

import "context"

// askingKey is the context key of the value that WithAsking adds.
type askingKey struct{}

// WithAsking adds to the context of a write a way to learn whether a client still waits for its
// answer. A write that has begun continues when its client hangs up, but costly preparations for
// the write end.
func WithAsking(ctx context.Context, asking func() (context.Context, context.CancelFunc)) context.Context {
	return context.WithValue(ctx, askingKey{}, asking)
}

// Asking returns a context that ends when no client waits for the answer anymore. If WithAsking was
// not called, the context ends with ctx.
func Asking(ctx context.Context) (context.Context, context.CancelFunc) {
	if asking, ok := ctx.Value(askingKey{}).(func() (context.Context, context.CancelFunc)); ok {
		return asking()
	}
	return context.WithCancel(ctx)
}
