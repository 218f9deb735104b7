package adk_test

import (
	"context"
	"time"

	"github.com/ckptsidecar/ckptsidecar/adapters/adk"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/adaptertest"
	"google.golang.org/adk/session"
)

// conform is the program of clients/conformance with this adapter.
func conform() {
	ctx := context.Background()
	sidecar := &client.Client{Deadline: time.Minute}
	defer sidecar.Close()
	service := &adk.Service{Client: sidecar}
	get := func(id string) (session.Session, error) {
		listed, err := service.List(ctx, &session.ListRequest{AppName: "conform", UserID: "u"})
		if err != nil {
			return nil, err
		}
		for _, s := range listed.Sessions {
			if s.ID() == id {
				got, err := service.Get(ctx, &session.GetRequest{AppName: "conform", UserID: "u", SessionID: id})
				if err != nil {
					return nil, err
				}
				return got.Session, nil
			}
		}
		return nil, nil
	}
	read := func(id string) ([]string, error) {
		values := []string{}
		s, err := get(id)
		if s == nil || err != nil {
			return values, err
		}
		for e := range s.Events().All() {
			values = append(values, e.Author)
		}
		return values, nil
	}
	add := func(id, value string) error {
		s, err := get(id)
		if err != nil {
			return err
		}
		if s == nil {
			made, err := service.Create(ctx, &session.CreateRequest{AppName: "conform", UserID: "u", SessionID: id})
			if err == nil {
				s = made.Session
			} else if s, err = get(id); err != nil { // another process has created it
				return err
			}
		}
		e := session.NewEvent("i")
		e.Author = value
		return service.AppendEvent(ctx, s, e)
	}
	remove := func(id string) error {
		return service.Delete(ctx, &session.DeleteRequest{AppName: "conform", UserID: "u", SessionID: id})
	}
	adaptertest.Conform(adaptertest.Sessions{Adapter: "adapters/adk", Agent: "adk", Shared: true, Add: add, Read: read, Remove: remove})
}
