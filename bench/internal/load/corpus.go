package load

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// corpusLeast is smaller than the source of any Go release, and large enough that a text does not
// repeat while the states that contain it are remembered.
const corpusLeast = 8 << 20

// ReadCorpus makes a text out of Go's own source: real words, which compress like the data that
// agents keep. It replaces bytes that JSON would escape, so that a driver in any language makes the
// same states without extra work.
func ReadCorpus(goroot string, most int) ([]byte, error) {
	var corpus []byte
	src := filepath.Join(goroot, "src")
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case len(corpus) >= most:
			return filepath.SkipAll
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		corpus = append(corpus, plain(text)...)
		return err
	})
	if err == nil && len(corpus) < corpusLeast {
		err = fmt.Errorf("it has only %d bytes of source", len(corpus))
	}
	if err != nil {
		return nil, fmt.Errorf("the text of the states is Go's source in %s: %w", src, err)
	}
	return corpus[:min(most, len(corpus))], nil
}

// plain leaves only printable ASCII that JSON does not escape.
func plain(text []byte) []byte {
	for i, c := range text {
		switch {
		case c == '"':
			text[i] = '\''
		case c == '\\':
			text[i] = '/'
		case c == '<' || c == '>' || c == '&': // encoding/json escapes these
			text[i] = '='
		case c < ' ':
			text[i] = ' '
		case c > '~':
			text[i] = '?'
		}
	}
	return text
}
