package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
)

//go:embed page/*.tmpl
var pageFiles embed.FS

//go:embed asset/*
var assetFiles embed.FS

// assets are the addresses of the style sheet, the script, and the icons: the hot one says that something needs a person. A name contains a
// hash, so that a page of a newer program never gets the script of an older one.
type assets struct{ CSS, JS, Icon, Hot string }

// pages draws pages.
type pages struct {
	set    *template.Template
	assets assets
	files  map[string][]byte
}

func newPages() (*pages, error) {
	p := &pages{files: map[string][]byte{}}
	for _, a := range []struct {
		file string
		at   *string
	}{{"console.css", &p.assets.CSS}, {"console.js", &p.assets.JS}, {"icon.svg", &p.assets.Icon}, {"hot.svg", &p.assets.Hot}} {
		data, err := fs.ReadFile(assetFiles, path.Join("asset", a.file))
		if err != nil {
			return nil, err
		}
		name := hash(data) + "-" + a.file
		p.files[name] = data
		*a.at = "/asset/" + name
	}
	var err error
	p.set, err = template.New("").Funcs(words).ParseFS(pageFiles, "page/*.tmpl")
	return p, err
}

var types = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// asset serves one of the files. They contain no data of any user.
func (p *pages) asset(w http.ResponseWriter, r *http.Request) {
	data, ok := p.files[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(r.PathValue("name"))])
	writePacked(w, r, http.StatusOK, data)
}

// draw returns the text of a page.
func (p *pages) draw(name string, view any) ([]byte, error) {
	var b bytes.Buffer
	if err := p.set.ExecuteTemplate(&b, name, view); err != nil {
		return nil, fmt.Errorf("the page %s cannot be drawn: %w", name, err)
	}
	return visible(b.Bytes()), nil
}

func (p *pages) write(w http.ResponseWriter, status int, name string, view any) {
	text, err := p.draw(name, view)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "The page cannot be drawn.")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// changing matches the parts of a page that change as time passes. The script updates
// them. They do not make the page a different one.
var changing = regexp.MustCompile(`(<time[^>]*>)[^<]*`)

// tag returns an identifier of the page's content that does not depend on the time.
func tag(text []byte) string { return `"` + hash(changing.ReplaceAll(text, []byte("$1"))) + `"` }

// visible replaces by visible marks what a browser would hide or obey: control
// characters, and characters that change the direction of text. The pages themselves
// contain none.
func visible(text []byte) []byte {
	if !bytes.ContainsFunc(text, hidden) {
		return text
	}
	var b bytes.Buffer
	b.Grow(len(text) + 64)
	for _, r := range string(text) {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune(0x2400 + r)
		case r == 0x7f:
			b.WriteRune(0x2421)
		default:
			fmt.Fprintf(&b, "⟪U+%04X⟫", r)
		}
	}
	return b.Bytes()
}

func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r == 0x061c, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
		return true
	case r == 0x00ad, r == 0x180e, r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f, r == 0x034f, r >= 0x115f && r <= 0x1160:
		return true
	}
	return false
}
