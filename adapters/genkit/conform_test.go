package genkit_test

import (
	"context"
	"time"

	"github.com/ckptsidecar/ckptsidecar/adapters/genkit"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/adaptertest"
	"github.com/firebase/genkit/go/core/x/session"
)

// conform is the program of clients/conformance with this adapter.
func conform() {
	ctx := context.Background()
	sidecar := &client.Client{Deadline: time.Minute}
	defer sidecar.Close()
	store := &genkit.Store[[]string]{Agent: sidecar.Agent("conform")}
	read := func(id string) ([]string, error) {
		data, err := store.Get(ctx, id)
		if data == nil || err != nil {
			return nil, err
		}
		return data.State, nil
	}
	add := func(id, value string) error {
		values, err := read(id)
		if err != nil {
			return err
		}
		return store.Save(ctx, id, &session.Data[[]string]{ID: id, State: append(values, value)})
	}
	adaptertest.Conform(adaptertest.Sessions{Adapter: "adapters/genkit", Agent: "conform", Add: add, Read: read})
}
