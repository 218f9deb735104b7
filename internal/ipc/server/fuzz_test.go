package server

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

func fuzzSave(t *testing.T, method, query, contentType, metadata string, body []byte) {
	store := newFakeStore()
	me := ckpt.Caller{Owner: "uid:1"}
	_, err := store.Save(t.Context(), ckpt.Scope{Caller: me}, &ckpt.SaveRequest{
		ID: id1, Agent: "a", Kind: ckpt.KindPreOperation, ContentType: ckpt.ContentTypeJSON, State: []byte(`{"a":{"b":[1,2]},"s":"x"}`),
	})
	check(t, err)
	server := NewServer(Options{Store: store})
	path := saves
	if method == "PUT" {
		path += "/" + id2
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
	server.HandlerFor(me).ServeHTTP(rec, r)
	if rec.Code >= 500 || rec.Code < 200 || server.Stats().Panics != 0 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	if err := jsontext.Check(rec.Body.Bytes()); err != nil {
		t.Fatalf("the reply is not strict JSON: %v: %s", err, rec.Body)
	}
	saved := store.list[len(store.list)-1]
	switch {
	case rec.Code != 201:
		equal(t, "saved", len(store.list), 1)
	case method == "PUT":
		equal(t, "bytes kept", bytes.Equal(saved.State, body), true)
	case ckpt.IsJSON(saved.ContentType):
		check(t, jsontext.Check(saved.State))
	}
}
