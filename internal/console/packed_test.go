package console

import (
	"io"
	"net/http"
	"testing"
)

// TestPagesArePacked: a browser that takes gzip gets pages and files compressed, with the text that others get.
func TestPagesArePacked(t *testing.T) {
	w := newWorld(t)
	w.save("coder", "main", `{"n":1}`)
	for _, path := range []string{w.base + "system", w.console.pages.assets.JS, w.console.pages.assets.CSS} {
		sizes, texts := map[string]int{}, map[string]string{}
		for _, takes := range []string{"gzip, br", "identity"} {
			r := w.send("GET", path, nil, func(r *http.Request) { r.Header.Set("Accept-Encoding", takes) })
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			sizes[takes], texts[takes] = len(body), r.Header.Get("Content-Encoding")
			if r.Header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s: Vary is %q", path, r.Header.Get("Vary"))
			}
		}
		if texts["gzip, br"] != "gzip" || texts["identity"] != "" || sizes["gzip, br"] > sizes["identity"]/2 {
			t.Errorf("%s: %v, %v", path, sizes, texts)
		}
	}
}
