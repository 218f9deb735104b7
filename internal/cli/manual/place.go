package manual

import (
	"strings"
)

// place is a position on the command line, "" or "policy set", and the words that can
// follow there.
type place struct {
	Path  string
	words []word
	names string // what the daemon completes here, "" for nothing
}

type word struct {
	text string
	help string
	flag bool
	file bool // a flag that is followed by a file name
}

func texts(words []word) string {
	var list []string
	for _, w := range words {
		list = append(list, w.text)
	}
	return strings.Join(list, " ")
}
