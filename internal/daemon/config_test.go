package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// home is the environment of a user who has a home folder.
func home(more ...string) Environment {
	vars := map[string]string{"HOME": "/home/ann", "ProgramData": `C:\ProgramData`, "LOCALAPPDATA": `C:\Users\ann\AppData\Local`}
	for i := 0; i < len(more); i += 2 {
		vars[more[i]] = more[i+1]
	}
	return func(name string) string { return vars[name] }
}

// sound returns a configuration that Check accepts.
func sound(t *testing.T) Config {
	t.Helper()
	c := Default(false, home())
	c.Database = filepath.Join(t.TempDir(), "ckpt.db")
	c.Socket = filepath.Join(t.TempDir(), "sock")
	return c
}

func TestDefaultIsSound(t *testing.T) {
	for _, system := range []bool{false, true} {
		c := Default(system, home())
		if err := c.Check(); err != nil {
			t.Errorf("system %v: %v", system, err)
		}
	}
}

func TestWithoutAnyHomeTheMessageSaysWhatToDo(t *testing.T) {
	nothing := func(string) string { return "" }
	c := Default(false, nothing)
	err := c.Check()
	if err == nil || !strings.Contains(err.Error(), "--db") {
		t.Errorf("Check: %v, want a hint at --db", err)
	}
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"syntax", "database = \"/a\"\nsocket = \n", "c.toml:2: "},
		{"twice", "socket = \"/a\"\nsocket = \"/b\"\n", "c.toml:2: "},
		{"unknown at the top", "\n\ncolour = 1\n", `c.toml:3: there is no setting "colour"`},
		{"unknown in a table", "[limits]\nmax_body = \"1MiB\"\nspeed = 3\n", `c.toml:3: there is no setting "limits.speed"`},
		{"unknown table", "[log]\nlevel = \"info\"\n\n[extras]\na = 1\n", `c.toml:4: there is no setting "extras"`},
		{"a setting in the wrong place", "max_body = \"1MiB\"\n", `c.toml:1: there is no setting "max_body"; did you mean limits.max_body?`},
		{"wrong case", "Database = \"/a\"\n", `c.toml:1: there is no setting "Database"`},
		{"number for a string", "socket = 7\n", "c.toml:1: socket must be a string in quotes, not a number"},
		{"string for a number", "[limits]\n\nconnections = \"7\"\n", "c.toml:3: limits.connections must be a whole number, not a string"},
		{"fraction for a number", "[limits]\nconnections = 7.5\n", "c.toml:2: limits.connections must be a whole number, not a number with a point"},
		{"string for a truth value", "multi_user = \"yes\"\n", "c.toml:1: multi_user must be true or false, not a string"},
		{"list for a size", "[limits]\nmax_body = [1]\n", `c.toml:2: limits.max_body must be a size like "64MiB", not a list`},
		{"bad size", "[limits]\nmax_body = \"64 elephants\"\n", `c.toml:2: limits.max_body "64 elephants" is not a size`},
		{"negative size", "[limits]\nmax_body = -1\n", "c.toml:2: limits.max_body must be a size"},
		{"number for a duration", "stop_timeout = 5\n", `c.toml:1: stop_timeout must be a duration like "30s", not a number`},
		{"bad duration", "stop_timeout = \"soon\"\n", `c.toml:1: stop_timeout "soon" is not a duration`},
		{"bad mode", "[access]\nsocket_mode = \"rw\"\n", `c.toml:2: access.socket_mode "rw" is not a file mode`},
		{"number for a mode", "[access]\nsocket_mode = 660\n", `c.toml:2: access.socket_mode must be a mode in quotes like "0660", not a number`},
		{"value for a table", "log = 1\n", `c.toml:1: there is no setting "log"`},
		{"table for a value", "[socket]\npath = \"/a\"\n", "c.toml:1: socket must be a string in quotes, not a table"},
		{"date", "socket = 2026-01-01\n", "c.toml:1: socket must be a string in quotes, not a date"},
		{"a command of notify", "database = \"/x\"\n\n[notify.commands.p]\n\nrun = 7\n", "c.toml:5: notify.commands.p.run is wrong: expected an array, got a number"},
		{"a webhook of notify", "database = \"/x\"\n\n[notify.webhooks.ops]\nurl = \"http://example.com\"\n", "c.toml:3: notify is wrong: the webhook \"ops\": "},
		{"an unknown member of notify", "\n[notify.webhooks.ops]\ncolour = 1\n", `c.toml:2: notify.webhooks.ops is wrong: unknown field "colour"`},
		{"an unknown member of the policy", "[policy]\nroutine_keep = 3\nnix = 1\n", `c.toml:3: policy.nix is wrong: unknown field "nix"`},
		{"a wrong type in the policy", "[policy]\n\nroutine_keep = \"a\"\n", "c.toml:3: policy.routine_keep is wrong: expected"},
		{"a wrong value in the policy", "[policy]\nrecovery_keep = \"3d\"\nroutine_keep = -1\n", "c.toml:3: policy is wrong: routine_keep "},
		{"the policy as a text", "policy = '{\"nix\": 1}'\n", `c.toml:1: policy is wrong: JSON line 1, `},
		{"dotted key", "log.colour = 1\n", `c.toml:1: there is no setting "log.colour"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := sound(t)
			err := c.parse("c.toml", tt.text)
			if err == nil {
				t.Fatal("was accepted")
			}
			if !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s…", err, tt.want)
			}
		})
	}
}

// TestEachMistakeInATableIsReported: also in the tables whose values are JSON elsewhere.
func TestEachMistakeInATableIsReported(t *testing.T) {
	c := sound(t)
	err := c.parse("c.toml", "[policy]\nroutine_keep = -1\nnix = 1\n\n[notify.commands.p]\nrun = 7\n\n[notify.webhooks.ops]\nurl = 8\n")
	for _, want := range []string{"c.toml:2: ", "c.toml:3: ", "c.toml:6: ", "c.toml:9: "} {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// TestTheLineOfATable: what sets a table is the line of its first part.
func TestTheLineOfATable(t *testing.T) {
	c := sound(t)
	if err := c.parse("c.toml", "stop_timeout = \"20s\"\n\n[notify.commands.p]\nrun = [\"/x\"]\n\n[notify.commands.q]\nrun = [\"/x\"]\n"); err != nil {
		t.Fatal(err)
	}
	if got := c.from["notify"]; got != "c.toml:3" {
		t.Errorf("notify was set by %q", got)
	}
}

func TestCheckNamesTheSetting(t *testing.T) {
	tests := []struct {
		want   string
		change func(*Config)
	}{
		{"database", func(c *Config) { c.Database = "ckpt.db" }},
		{"database", func(c *Config) { c.Database = "" }},
		{"socket", func(c *Config) { c.Socket = "" }},
		{"access.socket_mode", func(c *Config) { c.SocketMode = 0o666 }},
		{"access.socket_mode", func(c *Config) { c.SocketMode = 0o060 }},
		{"access.database_mode", func(c *Config) { c.DatabaseMode = 0o644 }},
		{"log.format", func(c *Config) { c.LogFormat = "xml" }},
		{"log.level", func(c *Config) { c.LogLevel = "loud" }},
		{"backup.interval", func(c *Config) { c.BackupInterval = ckpt.Duration(time.Second) }},
		{"backup.keep", func(c *Config) { c.BackupKeep = 0 }},
		{"backup.folder", func(c *Config) { c.BackupFolder = "backups" }},
		{"limits.stuck_after", func(c *Config) { c.StuckAfter = ckpt.Duration(time.Second) }},
		{"limits.max_body", func(c *Config) { c.MaxBody = 10 }},
		{"limits.max_body", func(c *Config) { c.MaxBody = 2 << 30 }},
		{"limits.max_database", func(c *Config) { c.MaxDatabase = 1 }},
		{"limits.owner_connections", func(c *Config) { c.OwnerConnections = 0 }},
		{"limits.free_floor", func(c *Config) { c.FreeFloor = -1 }},
		{"limits.owner_minimum", func(c *Config) { c.OwnerMinimum = -1 }},
		{"limits.owner_writes_per_second", func(c *Config) { c.OwnerWritesPerSecond = -1 }},
		{"limits.connections", func(c *Config) { c.Connections = 0 }},
		{"limits.reserve", func(c *Config) { c.Reserve = 100 }},
		{"limits.live_states", func(c *Config) { c.LiveStates = 100 }},
		{"limits.garbage", func(c *Config) { c.Garbage = 100 }},
		{"limits.live_states", func(c *Config) { c.LiveStates = -1 }},
		{"limits.write_timeout", func(c *Config) { c.WriteTimeout = 0 }},
		{"retention.keys", func(c *Config) { c.RetentionKeys = ckpt.Duration(time.Minute) }},
		{"retention.interval", func(c *Config) { c.RetentionInterval = ckpt.Duration(2 * ckpt.Day) }},
		{"monitor.interval", func(c *Config) { c.MonitorInterval = ckpt.Duration(ckpt.Day) }},
		{"drift.interval", func(c *Config) { c.DriftInterval = 0 }},
		{"drift.watched_runs", func(c *Config) { c.WatchedRuns = 0 }},
		{"stop_timeout", func(c *Config) { c.StopTimeout = ckpt.Duration(time.Hour) }},
	}
	for _, tt := range tests {
		c := sound(t)
		tt.change(&c)
		err := c.Check()
		if err == nil || !strings.HasPrefix(err.Error(), "the setting "+tt.want+" ") {
			t.Errorf("got %v, want a word about %s", err, tt.want)
		}
	}
}

func TestEnvironmentGoesOverTheFile(t *testing.T) {
	c := sound(t)
	if err := c.parse("c.toml", "socket = \"/file\"\nstop_timeout = \"3s\"\n[limits]\nmax_body = 2048\n"); err != nil {
		t.Fatal(err)
	}
	env := home("CKPTSIDECAR_SOCKET", "/env", "CKPTSIDECAR_DB", "/env.db", "CKPTSIDECAR_LIMITS_CONNECTIONS", "9", "CKPTSIDECAR_MULTI_USER", "true")
	if err := c.Environment(env); err != nil {
		t.Fatal(err)
	}
	want := Config{Socket: "/env", Database: "/env.db", Connections: 9, MultiUser: true, MaxBody: 2048, StopTimeout: ckpt.Duration(3 * time.Second)}
	got := Config{Socket: c.Socket, Database: c.Database, Connections: c.Connections, MultiUser: c.MultiUser, MaxBody: c.MaxBody, StopTimeout: c.StopTimeout}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentNamesTheVariable(t *testing.T) {
	for name, value := range map[string]string{
		"CKPTSIDECAR_LIMITS_MAX_BODY":    "big",
		"CKPTSIDECAR_LIMITS_CONNECTIONS": "many",
		"CKPTSIDECAR_MULTI_USER":         "perhaps",
		"CKPTSIDECAR_STOP_TIMEOUT":       "soon",
	} {
		c := sound(t)
		err := c.Environment(home(name, value))
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestEverySettingIsDocumentedAndItsOwn(t *testing.T) {
	c := sound(t)
	seen := map[string]bool{}
	for _, s := range c.Settings() {
		if len(s.Doc) < 20 || !strings.HasSuffix(s.Doc, ".") {
			t.Errorf("%s: %q is no sentence", s.Key, s.Doc)
		}
		if seen[s.Env] || seen[s.Key] {
			t.Errorf("%s or %s is there twice", s.Key, s.Env)
		}
		seen[s.Env], seen[s.Key] = true, true
	}
}

func TestPrintedConfigurationReadsBack(t *testing.T) {
	want := sound(t)
	want.MaxDatabase, want.OwnerWritesPerSecond, want.AdminGroup = 3<<30, 12, `a"b`
	path := filepath.Join(t.TempDir(), "config.toml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := want.Print(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var got Config
	if err := got.Load(path); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Error(diff)
	}
}

// TestAllMistakesAreNamedAtOnce: one error names all mistakes of syntax, type
// and range, each with its line, or with the variable that it came from.
func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	c := sound(t)
	err := c.parse("c.toml", "colour = 1\n[limits]\nmax_body = \"big\"\nconnections = 0\n\n[log]\nlevel = \"loud\"\n")
	err = errors.Join(err, c.Environment(home("CKPTSIDECAR_BACKUP_KEEP", "0", "CKPTSIDECAR_STOP_TIMEOUT", "soon")), c.Check())
	for _, want := range []string{
		"c.toml:1: there is no setting", "c.toml:3: limits.max_body", "CKPTSIDECAR_STOP_TIMEOUT",
		"c.toml:4: the setting limits.connections must", "c.toml:7: the setting log.level", "CKPTSIDECAR_BACKUP_KEEP: the setting backup.keep",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 6 {
		t.Errorf("%d mistakes are named:\n%v", lines, err)
	}
}

func TestPrintedConfigurationSaysWhereItComesFrom(t *testing.T) {
	c := sound(t)
	err := errors.Join(c.parse("/etc/c.toml", "\n[log]\nlevel = \"debug\"\n"), c.Environment(home("CKPTSIDECAR_BACKUP_KEEP", "9")), c.Set("stop_timeout", "2s", "--set"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"set by /etc/c.toml:3\nlevel = \"debug\"", "set by CKPTSIDECAR_BACKUP_KEEP\nkeep = 9", "set by --set\nstop_timeout = \"2s\"", "a restart\ndatabase = "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestLoadSaysWhichFile(t *testing.T) {
	c := sound(t)
	missing := filepath.Join(t.TempDir(), "none.toml")
	if err := c.Load(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("Load: %v", err)
	}
	if err := c.LoadDefault(missing); err != nil {
		t.Errorf("LoadDefault: %v", err)
	}
	if err := c.Load(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "512": 512, "1kB": 1000, "64KiB": 65536, "64 KiB": 65536, "10MB": 10_000_000, "2GiB": 2 << 30, "7B": 7,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%q does not read back: %v, %v", got.String(), again, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "KiB", "9999999999TiB", "1 elephant", "0x10"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q gave %d", text, got)
		}
	}
}

// TestDropInsGoOverTheFile: the files of conf.d are read after the default file, in the order of their names. A mistake
// names its own file and line.
func TestDropInsGoOverTheFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("conf.d/20-late.toml", "[limits]\nowner_bytes = \"3GiB\"\n")
	write("conf.d/10-early.toml", "[limits]\nowner_bytes = \"2GiB\"\nconnections = 77\n")
	write("conf.d/notes.txt", "no settings")
	c := sound(t)
	if err := c.LoadDefault(filepath.Join(dir, "config.toml")); err != nil || c.OwnerBytes != 3<<30 || c.Connections != 77 {
		t.Errorf("without a file: %v, %+v", err, c.OwnerBytes)
	}
	write("config.toml", "[limits]\nowner_bytes = \"1GiB\"\nowner_connections = 55\n")
	c = sound(t)
	if err := c.LoadDefault(filepath.Join(dir, "config.toml")); err != nil || c.OwnerBytes != 3<<30 || c.OwnerConnections != 55 {
		t.Errorf("with a file: %v, %+v", err, c.OwnerBytes)
	}
	write("conf.d/20-late.toml", "\ncolour = 1\n")
	if err := c.LoadDefault(filepath.Join(dir, "config.toml")); err == nil || !strings.Contains(err.Error(), "20-late.toml:2: there is no setting") {
		t.Errorf("a mistake: %v", err)
	}
}

// TestASectionThatStandsTwice: the error names both lines.
func TestASectionThatStandsTwice(t *testing.T) {
	c := sound(t)
	err := c.parse("c.toml", "[limits]\nconnections = 5\n\n[log]\nlevel = \"warn\"\n[limits]\nowner_connections = 5\n")
	if err == nil || !strings.Contains(err.Error(), "c.toml:6: limits stands twice, here and in line 1: write it once") {
		t.Errorf("%v", err)
	}
}

// TestTheExampleIsCommentsOnly: settings that the documents say to append can be appended.
func TestTheExampleIsCommentsOnly(t *testing.T) {
	var b strings.Builder
	if err := Default(true, home()).Example(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			t.Errorf("no comment: %s", line)
		}
	}
	c := sound(t)
	if err := c.parse("c.toml", b.String()+"\n[limits]\nowner_bytes = \"2GiB\"\n"); err != nil || c.OwnerBytes != 2<<30 {
		t.Errorf("with a section appended: %v", err)
	}
}
