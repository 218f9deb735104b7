package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// Man prints the manual page. It uses the same model as --help, so it contains a new
// command or flag automatically.
type Man struct{}

func (c *Man) Run(a *cli.App, parser *kong.Kong, groups Groups) error {
	m := &manual{w: a.Data(), version: a.Version, groups: groups}
	m.begin()
	m.section("Description")
	for paragraph := range strings.SplitSeq(parser.Model.Help, "\n\n") {
		m.line(".PP")
		m.text(paragraph)
	}
	m.commands(parser.Model.Node)
	m.section("Common options")
	m.flags(parser.Model.Flags)
	m.settings()
	m.files()
	m.signals()
	m.section("See also")
	m.line(".BR sqlite3 (1),")
	m.line(".BR systemctl (1),")
	m.line(".BR journalctl (1)")
	return nil
}

// manual writes the macros of man(7).
type manual struct {
	w       io.Writer
	version string
	groups  Groups
}

// Groups are the groups of commands, in the order in which help shows them.
type Groups []kong.Group

func (m *manual) line(format string, args ...any) { fmt.Fprintf(m.w, format+"\n", args...) }

// text writes text for people, in which nothing counts as a macro.
func (m *manual) text(s string) {
	for line := range strings.Lines(strings.TrimSpace(s)) {
		m.line("%s", Roff(strings.TrimSpace(line)))
	}
}

// Roff escapes what troff would interpret.
func Roff(s string) string {
	s = strings.NewReplacer(`\`, `\(rs`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

func (m *manual) section(name string) { m.line(".SH %s", strings.ToUpper(name)) }

// item writes a word and its meaning.
func (m *manual) item(word, meaning string) {
	m.line(".TP")
	m.line(`\fB%s\fR`, Roff(word))
	m.text(meaning)
}

func (m *manual) begin() {
	m.line(`.\" Made by ckptsidecar itself: ckptsidecar man`)
	m.line(`.TH CKPTSIDECAR 1 "" "ckptsidecar %s" "User Commands"`, Roff(m.version))
	m.line(".nh")
	m.section("Name")
	m.line(`ckptsidecar \- the flight recorder of AI agents`)
	m.section("Synopsis")
	m.line(`.B ckptsidecar`)
	m.line(`\fIcommand\fR [\fIflags\fR] [\fIarguments\fR]`)
}

// commands lists every command that help shows, by its group.
func (m *manual) commands(root *kong.Node) {
	m.section("Commands")
	for _, group := range m.groups {
		m.line(".SS %s", Roff(group.Title))
		for _, leaf := range root.Leaves(true) {
			if leaf.ClosestGroup() != nil && leaf.ClosestGroup().Key == group.Key {
				m.command(leaf)
			}
		}
	}
}

func (m *manual) command(leaf *kong.Node) {
	m.line(".TP")
	m.line(`\fB%s\fR`, Roff(commandSummary(leaf)))
	m.text(leaf.Help)
	if leaf.Detail != "" {
		m.line(".IP")
		m.line(".nf")
		m.text(leaf.Detail)
		m.line(".fi")
	}
	var own []*kong.Flag
	for _, group := range leaf.AllFlags(true) {
		for _, f := range group {
			if f.Name != "help" && !isCommon(leaf, f) {
				own = append(own, f)
			}
		}
	}
	for _, arg := range leaf.Positional {
		if arg.Help != "" {
			m.under(arg.Summary(), arg.Help)
		}
	}
	for _, f := range own {
		m.under(flagText(f), f.Help)
	}
}

// under writes an item below an item.
func (m *manual) under(word, meaning string) {
	m.line(".RS")
	m.item(word, meaning)
	m.line(".RE")
}

// commandSummary returns how to type a command, without its flags.
func commandSummary(leaf *kong.Node) string {
	words := []string{strings.TrimPrefix(leaf.Path(), "ckptsidecar ")}
	for _, arg := range leaf.Positional {
		words = append(words, arg.Summary())
	}
	return strings.Join(words, " ")
}

// isCommon reports whether every command has the flag.
func isCommon(leaf *kong.Node, f *kong.Flag) bool {
	top := leaf
	for top.Parent != nil {
		top = top.Parent
	}
	for _, common := range top.Flags {
		if common == f {
			return true
		}
	}
	return false
}

func (m *manual) flags(list []*kong.Flag) {
	for _, f := range list {
		if !f.Hidden {
			m.item(flagText(f), f.Help)
		}
	}
}

// flagText returns how to type a flag.
func flagText(f *kong.Flag) string {
	text := "--" + f.Name
	if f.Short != 0 {
		text = "-" + string(f.Short) + ", " + text
	}
	if f.IsBool() {
		return text
	}
	return text + "=" + f.FormatPlaceHolder()
}

// settings lists the settings of the configuration file, with the variables that override
// them.
func (m *manual) settings() {
	m.section("Settings")
	m.text("The configuration file is TOML: limits.max_body is max_body below [limits]. A flag of serve goes over an " +
		"environment variable, that over the file, and this over the default. `ckptsidecar config show` prints all as they are.")
	own := daemon.Default(false, Anywhere)
	system := daemon.Default(true, Anywhere)
	theirs := system.Settings()
	for i, s := range own.Settings() {
		text := s.Doc + " Environment: " + s.Env + "."
		switch mine, its := s.Text(), theirs[i].Text(); {
		case s.Key == "database" || s.Key == "socket" || s.Key == "multi_user" || mine == "" && its == "":
		case mine == its:
			text += " Default: " + mine + "."
		default:
			text += fmt.Sprintf(" Default: %s, of the system's daemon %s.", cli.OrNone(mine), cli.OrNone(its))
		}
		m.item(s.Key, text)
	}
	m.item("CKPTSIDECAR_CONFIG", "An environment variable that names another configuration file, which must then be there.")
}

// Anywhere is an environment whose folders are shown as variables.
func Anywhere(name string) string {
	return map[string]string{
		"XDG_STATE_HOME": "/~/.local/state", "XDG_CONFIG_HOME": "/~/.config", "ProgramData": `C:\ProgramData`,
		"LOCALAPPDATA": `C:\~\AppData\Local`,
	}[name]
}

func (m *manual) files() {
	m.section("Files")
	own, system := daemon.Default(false, Anywhere), daemon.Default(true, Anywhere)
	shown := func(path string) string { return strings.TrimPrefix(path, "/~") }
	m.item("~"+shown(own.Database)+", "+system.Database, "The database of your own daemon, and of the system's.")
	m.item("~"+shown(daemon.DefaultFile(false, Anywhere))+", "+daemon.DefaultFile(true, Anywhere),
		"Their configuration files, which need not be there.")
	m.item("$XDG_RUNTIME_DIR/ckptsidecar.sock, "+system.Socket, "Their sockets.")
}

func (m *manual) signals() {
	m.section("Signals")
	m.item("SIGTERM, SIGINT", "End serve: requests in flight are answered first. A second one waits for nobody.")
	m.item("SIGHUP", "Has serve read its settings anew, where it does not run in a terminal.")
}
