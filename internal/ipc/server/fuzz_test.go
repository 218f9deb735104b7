package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// fuzzedStore is a store that has a state to which changes may be made.
func fuzzedStore(f *testing.F) *db.Store {
	store := openStore(f)
	_, err := store.Save(f.Context(), me(), &ckpt.SaveRequest{
		ID: id1, Agent: "a", Kind: ckpt.KindPreOperation, ContentType: ckpt.ContentTypeJSON, State: []byte(`{"a":{"b":[1,2]},"s":"x"}`),
	})
	expect.OK(f, err)
	return store
}

func fuzzSave(t *testing.T, store *db.Store, method, query, contentType, metadata string, body []byte) {
	server := NewServer(Options{Store: store})
	path := saves
	id, err := newTestID()
	expect.OK(t, err)
	if method == "PUT" {
		path += "/" + id
	} else {
		method = "POST"
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.URL = &url.URL{Path: path, RawQuery: query}
	r.Header = http.Header{}
	for name, v := range map[string]string{"Content-Type": contentType, ipc.HeaderMetadata: metadata} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	rec := httptest.NewRecorder()
	server.HandlerFor(me().Caller).ServeHTTP(rec, r)
	if rec.Code >= 500 || rec.Code < 200 || server.Stats().Panics != 0 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	if err := jsontext.Check(rec.Body.Bytes()); err != nil {
		t.Fatalf("the reply is not strict JSON: %v: %s", err, rec.Body)
	}
	if rec.Code != 201 {
		_, err := store.Checkpoint(t.Context(), me(), id, false)
		expect.Code(t, err, ckpt.CodeNotFound)
		return
	}
	var told ckpt.Saved
	expect.OK(t, json.Unmarshal(rec.Body.Bytes(), &told))
	saved, err := store.Checkpoint(t.Context(), me(), told.ID, true)
	expect.OK(t, err)
	switch {
	case method == "PUT" && contentType != ipc.TypeDelta:
		expect.Equal(t, "bytes kept", bytes.Equal(saved.State, body), true)
	case ckpt.IsJSON(saved.ContentType):
		expect.OK(t, jsontext.Check(saved.State))
	}
}
