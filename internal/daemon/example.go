package daemon

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Print writes c as a commented configuration file, with the source of each setting.
func (c Config) Print(w io.Writer) error {
	return c.write(w, "# Settings of ckptsidecar. A flag goes over an environment variable, that over\n# this file, "+
		"and this file over the default.\n", "")
}

// Example writes the file that packages install. It has comments only: each setting with its
// default. Therefore a newer default applies unless a person has set a value, and a section that
// is appended stands once.
func (c Config) Example(w io.Writer) error {
	return c.write(w, "# Settings of ckptsidecar. Each line with a # and no space after it is a default. To change a setting,\n"+
		"# remove the # before the setting and before its [section], or append both at the end of this file, or\n"+
		"# write both into a file conf.d/NAME.toml beside this file. A later file goes over this one.\n"+
		"# After a change: `ckptsidecar config check --system` reports mistakes. `systemctl reload\n# ckptsidecar` checks too, and applies "+
		"what a reload can change; the rest needs a restart.\n", "#")
}

func (c Config) write(w io.Writer, heading, before string) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, heading)
	table := ""
	for _, s := range c.Settings() {
		name := s.Key
		if head, rest, found := strings.Cut(s.Key, "."); found {
			name = rest
			if head != table {
				table = head
				fmt.Fprintf(b, "\n%s[%s]\n", before, table)
			}
		}
		fmt.Fprintf(b, "\n# %s\n# Environment: %s; changed by %s%s\n%s%s = %s\n",
			s.Doc, s.Env, s.change(), c.origin(s.Key), before, name, s.tomlText())
	}
	return b.Flush()
}

// change says how a changed setting takes effect.
func (s Setting) change() string {
	if s.Live {
		return "a reload"
	}
	return "a restart"
}

func (c Config) origin(key string) string {
	if place := c.SetBy(key); place != "" {
		return "; set by " + place
	}
	return ""
}
