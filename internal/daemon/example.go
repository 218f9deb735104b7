package daemon

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Print writes c as a configuration file that explains itself.
func (c Config) Print(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, "# Settings of ckptsidecar. A flag goes over an environment variable, that over\n# this file, and this file over the default.\n")
	table := ""
	for _, s := range c.Settings() {
		name := s.Key
		if head, rest, found := strings.Cut(s.Key, "."); found {
			name = rest
			if head != table {
				table = head
				fmt.Fprintf(b, "\n[%s]\n", table)
			}
		}
		from := ""
		if place := c.SetBy(s.Key); place != "" {
			from = "; set by " + place
		}
		when := "a restart"
		if s.Live {
			when = "a reload"
		}
		fmt.Fprintf(b, "\n# %s\n# Environment: %s; changed by %s%s\n%s = %s\n", s.Doc, s.Env, when, from, name, s.tomlText())
	}
	return b.Flush()
}
