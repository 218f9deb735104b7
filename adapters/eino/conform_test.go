package eino_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ckptsidecar/ckptsidecar/adapters/eino"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/adaptertest"
)

// conform is the program of clients/conformance with this adapter.
func conform() {
	ctx := context.Background()
	sidecar := &client.Client{Deadline: time.Minute}
	defer sidecar.Close()
	store := &eino.Store{Agent: sidecar.Agent("conform")}
	read := func(id string) ([]string, error) {
		values := []string{}
		state, found, err := store.Get(ctx, id)
		if found && err == nil {
			err = json.Unmarshal(state, &values)
		}
		return values, err
	}
	add := func(id, value string) error {
		values, err := read(id)
		if err != nil {
			return err
		}
		state, err := json.Marshal(append(values, value))
		if err != nil {
			return err
		}
		return store.Set(ctx, id, state)
	}
	adaptertest.Conform(adaptertest.Sessions{Adapter: "adapters/eino", Agent: "conform", Add: add, Read: read})
}
