package genkit_test

import (
	"context"
	"errors"

	"github.com/ckptsidecar/ckptsidecar/adapters/genkit"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/firebase/genkit/go/core/x/session"
)

// The function below is the snippet of docs/ADAPTERS.md. TestDocs compares it
// with the document. A child process runs it: see TestKilledFlow.

func opened(ctx context.Context, sidecar *client.Client, id string) (*session.Session[progress], error) {
	store := &genkit.Store[progress]{Agent: sidecar.Agent("genkit")}
	found, err := session.Load(ctx, store, id)
	var none *session.NotFoundError
	if errors.As(err, &none) {
		return session.New(ctx, session.WithID[progress](id), session.WithStore(store))
	}
	return found, err
}
