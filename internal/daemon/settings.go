package daemon

import (
	"encoding"
	"fmt"
	"strconv"
	"strings"
)

// Setting is one setting of the configuration: its name, what it does, and
// where it is kept.
type Setting struct {
	Key string // as in the file: "limits.max_body" is max_body in [limits]
	Env string // the environment variable
	Doc string // one or two sentences

	Live bool // a reload takes it into use; the others need a restart

	at any // points into a Config: *string, *bool, *int, or something that reads text
}

// Settings lists every setting of c. It is the one table behind the file, the
// environment, the flags and the printed example.
func (c *Config) Settings() []Setting {
	const live, start = true, false
	list := []Setting{
		{"database", "CKPTSIDECAR_DB", "The database file. Its folder is made if it is missing.", start, &c.Database},
		{"socket", "CKPTSIDECAR_SOCKET", "The Unix socket or the named pipe at which agents call. It does not count " +
			"where systemd hands a socket over.", start, &c.Socket},
		{"multi_user", "", "Several users share this daemon. It then refuses to start where the kernel cannot tell " +
			"users apart. A daemon that root starts by hand is shared too.", start, &c.MultiUser},
		{"stop_timeout", "", "How long a stop waits for requests in flight before it ends them.", live, &c.StopTimeout},
		{"policy", "", "The policy for everybody's agents, as a table or as JSON in quotes: what an owner's policy for all " +
			"agents (`policy set '*'`) or an agent's own does not set.", live, &c.Policy},
		{"notify", "", "Who is told of what has happened: tables of webhooks, each with url, secret_file and events, and of commands, each with " +
			"run and events; none by default. See docs/OPERATIONS.md.", live, &c.Notify},
		{"access.database_mode", "", "The permissions of the database files: 0600, or 0640 to let the group of their " +
			"folder's auditors read.", start, &c.DatabaseMode},
		{"access.socket_mode", "", "The permissions of the socket: 0600, or 0660 to let its group in.", start, &c.SocketMode},
		{"access.socket_group", "", "The group that the socket belongs to; empty for the daemon's own.", start, &c.SocketGroup},
		{"access.admin_group", "", "The group whose members may read and administer everybody's agents, as root may; empty for none.", start, &c.AdminGroup},
		{"backup.interval", "", "How often the database is backed up; 0s for never.", live, &c.BackupInterval},
		{"backup.keep", "", "How many of these backups stay; the oldest goes when a newer one has been verified.", live, &c.BackupKeep},
		{"backup.folder", "", "Where backups go, better on another disk; empty for the folder backups beside the database.", live, &c.BackupFolder},
		{"log.format", "", "The form of the log: text for people, json for collectors, or auto, which is the journal " +
			"or the event log where the service manager listens, and else text.", start, &c.LogFormat},
		{"log.level", "", "What is logged: debug, info, warn or error.", live, &c.LogLevel},
		{"limits.max_body", "", "The largest request, and so the largest state.", start, &c.MaxBody},
		{"limits.max_database", "", "The largest database file; 0 for no limit. Reads and deletes go on when it is reached.", start, &c.MaxDatabase},
		{"limits.reserve", "", "Room on the disk that is kept by a file beside the database, so that deletes work " +
			"where the disk is full; it grows with what waits in the log. 0 for none.", start, &c.Reserve},
		{"limits.owner_bytes", "", "How much one user may have stored, with everything that it takes: states, steps, " +
			"events, policies, rows of the audit log; 0 for no limit.", start, &c.OwnerBytes},
		{"limits.owner_share", "", "How many percent one user may have of what that user has stored and the room that " +
			"is left, on the disk and below limits.max_database: there is always room for others. 0 for no limit.", start, &c.OwnerShare},
		{"limits.agent_files", "", "How much the contents of the files of one agent may take, as they are stored. Beyond it " +
			"the oldest unpinned routine checkpoints of the agent lose their files, and say so; 0 for no limit.", start, &c.AgentFiles},
		{"limits.owner_writes_per_second", "",
			"How many writes a second one user may send: saves, steps, events and all else that changes something; 0 " +
				"for no limit. A heartbeat counts, and is never refused for it. Its former name, " +
				"`limits.owner_saves_per_second`, still works.", start, &c.OwnerWritesPerSecond},
		{"limits.owner_connections", "", "How many connections one user may have open.", start, &c.OwnerConnections},
		{"limits.connections", "", "How many connections may be open at all.", start, &c.Connections},
		{"limits.live_states", "", "Memory for the newest state of each run that is being saved: of the next one only " +
			"what changed is then looked at and stored. One state may take half of it; a quarter more is used for " +
			"states on their way. 0 for none: every state is stored whole.", start, &c.LiveStates},
		{"limits.garbage", "", "How much memory may be garbage before it is collected: more saves processor time " +
			"under load. It is at most four times what is in use, and given back when the load ends. 0 leaves it to " +
			"GOGC, as the environment variable GOGC does.", start, &c.Garbage},
		{"limits.write_timeout", "", "How long a write waits for a locked database before it is answered with busy.", start, &c.WriteTimeout},
		{"limits.stuck_after", "", "How long the writer may have work and commit nothing, because a write stands " +
			"still or a lock does not come free, before the daemon ends itself, to be started afresh; 0s for ever. " +
			"Where systemd's watchdog is on, it ends a writer that stands still after half of WatchdogSec=.", live, &c.StuckAfter},
		{"retention.interval", "", "How often checkpoints are looked at that go by age or budget.", live, &c.RetentionInterval},
		{"retention.keys", "", "How long idempotency keys are remembered: who asks again within this time gets the " +
			"first answer, and nothing is done twice. A client that was cut off may ask so much later.", live, &c.RetentionKeys},
		{"audit.keep", "", "How long rows of the audit log stay in the database, at least 8d; older ones go to files in audit.folder, " +
			"each of which verifies by itself. 0s keeps all of them.", live, &c.AuditKeep},
		{"audit.folder", "", "Where those files go; empty for the folder audit beside the database.", live, &c.AuditFolder},
		{"monitor.interval", "", "How often the owners of runs are looked at; a dead one is found that much later at most.", live, &c.MonitorInterval},
		{"drift.interval", "", "How often runs are looked at for what only time shows: checkpoints that are due, " +
			"agents that do not agree.", start, &c.DriftInterval},
		{"drift.watched_runs", "", "Of how many runs what the drift detectors know is kept in memory; of others it is " +
			"read again when they are written to.", start, &c.WatchedRuns},
		{"metrics.listen", "", "Answer Prometheus at this port too, such as 127.0.0.1:9464, with GET /metrics alone; empty for no port. " +
			"Every user of the machine can read it: the numbers name nobody, and are of everybody.", start, &c.MetricsListen},
		{"fleet.engine_file", "", "The file that holds the URL of the engine to which this host ships what it commits, such as " +
			"postgres://USER:PASSWORD@HOST/DATABASE; credential:NAME for a credential of systemd; empty for no fleet. See docs/FLEET.md.", start, &c.FleetEngine},
		{"fleet.name", "", "The name of this host in the fleet, for people; empty for the machine's own name.", start, &c.FleetName},
		{"fleet.interval", "", "The shortest time between two batches to the engine: longer costs less, and loses more with the host's disk.", start, &c.FleetInterval},
		{"fleet.max_batch", "", "About how much one batch to the engine holds. A run is never cut, so one that is larger goes as a batch of its own.", start, &c.FleetBatch},
		{"otlp.enabled", "", "Take OpenTelemetry's traces from agents that are instrumented already, by gRPC and HTTP, at the " +
			"socket otlp.sock beside the daemon's own.", start, &c.OTLP},
		{"otlp.loopback", "", "Take them at this port too, such as 127.0.0.1:4318, from those who have a token (`ckptsidecar token " +
			"create`); empty for no port. It is the only way on Windows, and for exporters that know no sockets.", start, &c.OTLPLoopback},
		{"otlp.content", "", "What is kept of the arguments and results of tools: hash, keyed prints for the drift detectors; none; or " +
			"keep, the text without what looks like a secret.", start, &c.OTLPContent},
	}
	for i := range list {
		if list[i].Env == "" {
			list[i].Env = envOf(list[i].Key)
		}
	}
	return list
}

// renamed are the settings that have a new name. The old one still works, so
// that an upgrade starts with the file that is there.
var renamed = map[string]string{"limits.owner_saves_per_second": "limits.owner_writes_per_second"}

// currentKey is the name of a setting today.
func currentKey(key string) string {
	if now, ok := renamed[key]; ok {
		return now
	}
	return key
}

// formerEnvs are the environment variables of a setting's former names.
func (s *Setting) formerEnvs() []string {
	var envs []string
	for old, now := range renamed {
		if now == s.Key {
			envs = append(envs, envOf(old))
		}
	}
	return envs
}

func envOf(key string) string {
	return "CKPTSIDECAR_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Set changes one setting by its name, from the text that a person wrote in a
// place: "--db", for example.
func (c *Config) Set(key, text, place string) error {
	key = currentKey(key)
	for _, s := range c.Settings() {
		if s.Key == key {
			c.setBy(key, place)
			return s.setText(text)
		}
	}
	return fmt.Errorf("there is no setting %q%s", key, c.nearest(key))
}

// setBy notes where a setting comes from.
func (c *Config) setBy(key, place string) {
	if c.from == nil {
		c.from = map[string]string{}
	}
	c.from[key] = place
}

// SetBy is where a setting comes from: a file and its line, an environment
// variable, a flag; "" where it is the default.
func (c *Config) SetBy(key string) string { return c.from[key] }

// nearest offers the settings whose last word is the same or contains the key's.
func (c *Config) nearest(key string) string {
	word := key[strings.LastIndexByte(key, '.')+1:]
	for _, s := range c.Settings() {
		if word != "" && strings.Contains(s.Key, word) {
			return fmt.Sprintf("; did you mean %s?", s.Key)
		}
	}
	return "; `ckptsidecar config show` lists all"
}

// tableText is a setting that is a table in the file, and JSON elsewhere.
type tableText interface {
	encoding.TextUnmarshaler
	setTable(table map[string]any) error
	String() string
	toml() string
}

func (s Setting) setText(text string) error {
	var err error
	switch at := s.at.(type) {
	case *string:
		*at = text
	case *bool:
		err = take(at, strconv.ParseBool, text, "%q is neither true nor false")
	case *int:
		err = take(at, strconv.Atoi, text, "%q is not a whole number")
	case encoding.TextUnmarshaler:
		err = at.UnmarshalText([]byte(text))
	}
	return because(err, "%s: %w", s.Key, err)
}

// take sets what can be read, and leaves the rest as it is.
func take[T any](at *T, read func(string) (T, error), text, wrong string) error {
	v, err := read(text)
	if err != nil {
		return fmt.Errorf(wrong, text)
	}
	*at = v
	return nil
}

// because replaces a parser's message with one for people.
func because(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// setTOML takes a value as the file has it, refusing another type than the setting's.
func (s Setting) setTOML(v any) error {
	switch at := s.at.(type) {
	case *bool:
		if b, ok := v.(bool); ok {
			*at = b
			return nil
		}
		return fmt.Errorf("must be true or false, not %s", tomlType(v))
	case *int:
		if n, ok := v.(int64); ok && int64(int(n)) == n {
			*at = int(n)
			return nil
		}
		return fmt.Errorf("must be a whole number, not %s", tomlType(v))
	case *Size:
		if n, ok := v.(int64); ok && n >= 0 {
			*at = Size(n)
			return nil
		}
	}
	if at, ok := s.at.(tableText); ok {
		if table, ok := v.(map[string]any); ok {
			return at.setTable(table)
		}
	}
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("must be %s, not %s", s.wants(), tomlType(v))
	}
	if at, ok := s.at.(*string); ok {
		*at = text
		return nil
	}
	return s.at.(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
}

func (s Setting) wants() string {
	switch s.at.(type) {
	case *Size:
		return `a size like "64MiB"`
	case *FileMode:
		return `a mode in quotes like "0660"`
	case *string:
		return "a string in quotes"
	case *PolicyText:
		return "a table like { routine_keep = 10 }"
	case *NotifyText:
		return "a table of webhooks and commands"
	}
	return `a duration like "30s"`
}

func tomlType(v any) string {
	switch v.(type) {
	case bool:
		return "a truth value"
	case int64:
		return "a number"
	case float64:
		return "a number with a point"
	case string:
		return "a string"
	case []any, []map[string]any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date"
}

// Text is the setting's value as Set takes it.
func (s Setting) Text() string {
	switch at := s.at.(type) {
	case *string:
		return *at
	case tableText:
		return at.String()
	}
	text := s.tomlText()
	if unquoted, err := strconv.Unquote(text); err == nil {
		return unquoted
	}
	return text
}

// tomlText is the setting's value as the file would write it.
func (s Setting) tomlText() string {
	switch at := s.at.(type) {
	case *bool:
		return strconv.FormatBool(*at)
	case *int:
		return strconv.Itoa(*at)
	case *string:
		return strconv.Quote(*at)
	case tableText:
		return at.toml()
	}
	return strconv.Quote(fmt.Sprint(deref(s.at)))
}

func deref(v any) fmt.Stringer {
	if at, ok := v.(*FileMode); ok {
		return *at
	}
	return v.(fmt.Stringer)
}
