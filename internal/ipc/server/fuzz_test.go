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

// fuzzedStore is a store with a state that can serve as a base.
func fuzzedStore(f *testing.F) *db.Store {
	store := openStore(f)
	_, err := store.Save(f.Context(), me(), &ckpt.SaveRequest{
		ID: id1, Agent: "a", Kind: ckpt.KindPreOperation, ContentType: ckpt.ContentTypeJSON, State: []byte(`{"a":{"b":[1,2]},"s":"x"}`),
	})
	expect.OK(f, err)
	return store
}

func fuzzSave(t *testing.T, store *db.Store, method, query, contentType, metadata string, body []byte) {
	server := NewServer(Options{Store: StoreOf(store)})
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

// fuzzFiles makes a call about files. The answer must be strict JSON, and must
// not be an error of the server.
func fuzzFiles(t *testing.T, store *db.Store, path, contentType string, body []byte) {
	server := NewServer(Options{Store: StoreOf(store)})
	r := httptest.NewRequest("POST", path, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	rec := httptest.NewRecorder()
	server.HandlerFor(me().Caller).ServeHTTP(rec, r)
	if rec.Code >= 500 || rec.Code < 200 || server.Stats().Panics != 0 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	if err := jsontext.Check(rec.Body.Bytes()); err != nil {
		t.Fatalf("the reply is not strict JSON: %v: %s", err, rec.Body)
	}
}

const sumOfFoo = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"

// FuzzContents sends streams of contents. Each accepted content can be read
// back under its hash.
func FuzzContents(f *testing.F) {
	store := fuzzedStore(f)
	for _, seed := range []string{"", "\n", sumOfFoo + " 3 -\nfoo", sumOfFoo + " 3 " + sumOfFoo + "\nfoo" + sumOfFoo + " 3 -\nfoo", sumOfFoo + " 9 -\nfoo",
		sumOfFoo + " 99999999999999999999 -\n", "  \n", sumOfFoo + " 3 -\nbar"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzFiles(t, store, "/v1/agents/a/contents", ipc.TypeContents, body)
		if data, err := store.Content(t.Context(), me(), "a", sumOfFoo); err == nil && string(data) != "foo" {
			t.Fatalf("the content of foo is %q", data)
		}
	})
}

// FuzzTree sends trees.
func FuzzTree(f *testing.F) {
	store := fuzzedStore(f)
	server := NewServer(Options{Store: StoreOf(store)})
	r := httptest.NewRequest("POST", "/v1/agents/a/contents", bytes.NewReader([]byte(sumOfFoo+" 3 -\nfoo")))
	rec := httptest.NewRecorder()
	server.HandlerFor(me().Caller).ServeHTTP(rec, r)
	expect.Equal(f, "status", rec.Code, http.StatusOK)
	entry := `{"path":"a/b","mode":"0644","size":3,"sha256":"` + sumOfFoo + `"}`
	for _, seed := range []string{"", "{}", `{"root":"/r","captured_at":null,"complete":true,"set":[` + entry + `]}`,
		`{"root":"/r","captured_at":null,"complete":false,"left_out":[{"path":"x","why":"secret"}],"set":[{"path":"l","mode":"link","size":1,"sha256":"","target":"a"}]}`,
		`{"base":"` + sumOfFoo + `","root":"/r","captured_at":"2026-01-01T00:00:00Z","complete":true,"removed":["a"]}`,
		`{"root":"/r","captured_at":null,"complete":true,"set":[` + entry + `,` + entry + `]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzFiles(t, store, "/v1/agents/a/trees", ckpt.ContentTypeJSON, body)
	})
}
