package daemon

import (
	"encoding"
	"fmt"
	"strconv"
	"strings"
)

// Setting is one setting of the configuration: its name, what it does, and where its value is
// stored.
type Setting struct {
	Key string // as in the file: "limits.max_body" is max_body in [limits]
	Env string // the environment variable
	Doc string // one or two sentences

	Live bool // a reload applies it; the others need a restart

	at any // points into a Config: *string, *bool, *int, or a type that reads text
}

// Settings lists every setting of c. The file, the environment, the flags and the printed example
// all use this one table.
func (c *Config) Settings() []Setting {
	const live, start = true, false
	list := []Setting{
		{"database", "CKPTSIDECAR_DB", "The database file. The daemon creates its folder if it is missing.", start, &c.Database},
		{"socket", "CKPTSIDECAR_SOCKET", "The Unix socket or the named pipe that agents connect to. It is ignored if systemd passes a " +
			"socket.", start, &c.Socket},
		{"multi_user", "", "Several users share this daemon. It then refuses to start if the kernel cannot tell users apart. A daemon that " +
			"root starts by hand is shared too.", start, &c.MultiUser},
		{"stop_timeout", "", "How long a stop waits for requests in flight before it ends them.", live, &c.StopTimeout},
		{"policy", "", "The policy for everybody's agents, as a table or as JSON in quotes. An owner's policy (`policy set '*'`) and an " +
			"agent's own policy override it.", live, &c.Policy},
		{"notify", "", "Who is notified: tables of webhooks, each with url, secret_file and events, and of commands, each with run and " +
			"events; none by default. See docs/OPERATIONS.md.", live, &c.Notify},
		{"access.database_mode", "", "The permissions of the database files: 0600, or 0640 to let the group of their folder's auditors " +
			"read.", start, &c.DatabaseMode},
		{"access.socket_mode", "", "The permissions of the socket: 0600, or 0660 to let its group in.", start, &c.SocketMode},
		{"access.socket_group", "", "The group that the socket belongs to; empty for the daemon's own.", start, &c.SocketGroup},
		{"access.admin_group", "", "The group whose members may read and administer everybody's agents, as root may; empty for " +
			"none.", start, &c.AdminGroup},
		{"backup.interval", "", "How often the database is backed up; 0s for never.", live, &c.BackupInterval},
		{"backup.keep", "", "How many backups stay. The oldest is removed when a newer one has been verified.", live, &c.BackupKeep},
		{"backup.folder", "", "Where backups go, better on another disk; empty for the folder backups beside the database.", live, &c.BackupFolder},
		{"backup.after", "", "A program that the daemon runs with the path of each new backup, after it was verified, such as a script that copies it to " +
			"another host. Give an absolute path; empty for none. See docs/OPERATIONS.md.", live, &c.BackupAfter},
		{"backup.after_timeout", "", "How long that program may take before it is killed.", live, &c.BackupAfterTimeout},
		{"backup.drill", "", "How often the newest backup is restored into a temporary folder beside the backups, and verified there; 0s for " +
			"never.", live, &c.BackupDrill},
		{"log.format", "", "The format of the log: text for people, json for collectors, or auto, which is the journal or the event log under " +
			"a service manager, and else text.", start, &c.LogFormat},
		{"log.level", "", "What is logged: debug, info, warn or error.", live, &c.LogLevel},
		{"limits.max_body", "", "The largest state that a save may have.", start, &c.MaxBody},
		{"limits.max_database", "", "The largest database file; 0 for no limit. At the limit, reads and deletes still work.", start, &c.MaxDatabase},
		{"limits.reserve", "", "Disk space that a file beside the database reserves, so that deletes work on a full disk. It grows with the " +
			"write-ahead log. 0 for none.", start, &c.Reserve},
		{"limits.owner_bytes", "", "How many bytes one user may store, in states, steps, events, policies and rows of the audit log together; " +
			"0 for no limit.", start, &c.OwnerBytes},
		{"limits.free_floor", "", "How much free space, on the disk and below limits.max_database, is kept for users who store little: when less is free, " +
			"a user who stores more than limits.owner_minimum gets `quota`, and the daemon is `degraded`. At most a tenth of the disk counts. " +
			"0 for none.", start, &c.FreeFloor},
		{"limits.owner_minimum", "", "How many bytes each user may store even when less than limits.free_floor is free. At most a quarter of the floor counts.",
			start, &c.OwnerMinimum},
		{"limits.agent_files", "", "How many stored bytes the files of one agent may take. Beyond the limit, the agent's oldest unpinned " +
			"routine checkpoints lose their files, and say so, except the newest one of each run. 0 for no limit.", start, &c.AgentFiles},
		{"limits.owner_writes_per_second", "",
			"How many writes a second one user may send: saves, steps, events and everything else that changes something; 0 for no limit. " +
				"A heartbeat counts, but is never refused.", start, &c.OwnerWritesPerSecond},
		{"limits.owner_connections", "", "How many connections one user may have open.", start, &c.OwnerConnections},
		{"limits.connections", "", "How many connections all users together may have open.", start, &c.Connections},
		{"limits.live_states", "", "Memory for the newest state of each active run, so that the next save compares and stores only what " +
			"changed. One state may take half of it. States in transit take up to a quarter more. 0 for none: every state is stored " +
			"whole.", start, &c.LiveStates},
		{"limits.garbage", "", "How much garbage may collect in memory before the collector runs. More saves processor time under load. It is " +
			"at most four times the memory in use, and is returned when the load ends. 0 leaves it to GOGC, as the environment variable GOGC " +
			"does.", start, &c.Garbage},
		{"limits.write_timeout", "", "How long a write waits for a locked database before the daemon answers busy.", start, &c.WriteTimeout},
		{"limits.stuck_after", "", "How long the writer may have work and commit nothing, because a write hangs or a lock is not released, " +
			"before the daemon exits to be restarted; 0s for ever. If systemd's watchdog is on, it ends a hanging writer after half of " +
			"WatchdogSec=.", live, &c.StuckAfter},
		{"retention.interval", "", "How often the daemon looks for checkpoints to remove by age or budget.", live, &c.RetentionInterval},
		{"retention.keys", "", "How long idempotency keys are remembered. A request that is repeated within this time gets the first answer, " +
			"and nothing is done twice.", live, &c.RetentionKeys},
		{"audit.keep", "", "How long rows of the audit log stay in the database, at least 8d. Older rows move to files in audit.folder, and " +
			"each file can be verified by itself. 0s keeps all rows.", live, &c.AuditKeep},
		{"audit.folder", "", "Where those files go; empty for the folder audit beside the database.", live, &c.AuditFolder},
		{"monitor.interval", "", "How often the daemon checks the owners of runs. It notices a dead one after this time at " +
			"most.", live, &c.MonitorInterval},
		{"monitor.heartbeats", "", "How long a heartbeat may stay in memory before it is on disk, so that an agent that waits for its model costs no " +
			"flush. A crash may lose it: the next daemon gives each run its whole time. 0s writes each heartbeat before its answer.", start, &c.Heartbeats},
		{"drift.interval", "", "How often the daemon checks runs for what only time shows: overdue checkpoints, agents that do not " +
			"agree.", start, &c.DriftInterval},
		{"drift.watched_runs", "", "For how many runs the drift detectors keep their state in memory. For other runs it is read again at the " +
			"next write.", start, &c.WatchedRuns},
		{"metrics.listen", "", "Serve GET /metrics for Prometheus at this address too, such as 127.0.0.1:9464; empty for no port. Every user " +
			"of the machine can read it. The numbers cover all users and name nobody.", start, &c.MetricsListen},
		{"fleet.engine_file", "", "The file that holds the URL of the engine to which this host ships what it commits, such as " +
			"postgres://USER:PASSWORD@HOST/DATABASE; credential:NAME for a credential of systemd; empty for no fleet. See " +
			"docs/FLEET.md.", start, &c.FleetEngine},
		{"fleet.name", "", "The name of this host in the fleet, for people; empty for the machine's own name.", start, &c.FleetName},
		{"fleet.interval", "", "The shortest time between two batches to the engine. A longer time costs less, but more is lost with the " +
			"host's disk.", start, &c.FleetInterval},
		{"fleet.max_batch", "", "The approximate size of one batch to the engine. A run is never split, so a larger run is a batch of its " +
			"own.", start, &c.FleetBatch},
		{"fleet.ship", "", "Which agents this host ships: `all`, or `policy` for only those whose policies say `durability: fleet` or " +
			"`takeover: auto`. The others stay on this host.", start, &c.FleetShip},
		{"fleet.assume_durable", "", "Let the engine confirm writes of agents with `durability: fleet` " +
			"although it does not say that its commits wait for another machine. " +
			"Set it only where you know that the engine's storage is replicated.", start, &c.FleetAssume},
		{"fleet.key_file", "", "The file with the keys that seal states and texts before they are shipped " +
			"(`ckptsidecar fleet keys add` makes it), " +
			"or credential:NAME; empty to store in the clear, so that whoever can read the engine reads them.", start, &c.FleetKeys},
		{"fleet.principals", "", "Who users of this host are in the whole fleet, " +
			"as a table such as { \"uid:1000\" = \"acme/build\" }. " +
			"A user who is the same principal on two hosts sees his runs of both. See docs/FLEET.md.", live, &c.FleetPrincipals},
		{"fleet.realms", "", "Ranges of uids that a directory gives on every host, as a table such as { acme = \"uid:200000-299999\" }. Then uid " +
			"200123 is the principal acme/uid:200123.", live, &c.FleetRealms},
		{"fleet.lease", "", "How long this host owns its runs in the fleet after the engine last confirmed it, 5s to 10m. A shorter lease lets " +
			"other hosts go on sooner after a failure. A longer one bears longer outages of the engine.", start, &c.FleetLease},
		{"fleet.grace", "", "How much longer than another host's lease this host waits before it claims a run of that host. It must exceed the " +
			"clock skew between the engine's own machines, over which the engine may fail over.", start, &c.FleetGrace},
		{"otlp.enabled", "", "Receive OpenTelemetry traces from instrumented agents, by gRPC and HTTP, at the socket otlp.sock beside the " +
			"daemon's own.", start, &c.OTLP},
		{"otlp.loopback", "", "Receive traces at this address too, such as 127.0.0.1:4318, from senders with a token (`ckptsidecar token " +
			"create`); empty for no port. Windows and exporters without support for sockets need it.", start, &c.OTLPLoopback},
		{"otlp.content", "", "What is kept of the arguments and results of tools: hash, keyed hashes for the drift detectors; none; or keep, " +
			"the text without likely secrets.", start, &c.OTLPContent},
		{"otlp.strangers", "", "How many connections to otlp.loopback may be open that have shown no token yet. One more closes the oldest.",
			start, &c.OTLPStrangers},
		{"otlp.token_time", "", "How long a connection to otlp.loopback may show no token before the daemon closes it, 100ms to 5m.", start,
			&c.OTLPTokenTime},
	}
	for i := range list {
		if list[i].Env == "" {
			list[i].Env = envOf(list[i].Key)
		}
	}
	return list
}

func envOf(key string) string {
	return "CKPTSIDECAR_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Set changes one setting by its name, from text that a person wrote. place names the source:
// "--db", for example.
func (c *Config) Set(key, text, place string) error {
	for _, s := range c.Settings() {
		if s.Key == key {
			c.setBy(key, place)
			return s.setText(text)
		}
	}
	return fmt.Errorf("there is no setting %q%s", key, c.nearest(key))
}

// setBy records the source of a setting.
func (c *Config) setBy(key, place string) {
	if c.from == nil {
		c.from = map[string]string{}
	}
	c.from[key] = place
}

// SetBy returns the source of a setting: a file and its line, an environment variable, or a flag.
// It is "" for a default.
func (c *Config) SetBy(key string) string { return c.from[key] }

// nearest suggests the settings whose last word is the same as the key's or contains it.
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

// take sets a value that can be read, and otherwise leaves the setting unchanged.
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

// setTOML sets a value from the file. It refuses a value whose type is not the setting's.
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
	case *NamesText:
		return "a table of texts"
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

// Text returns the setting's value in the form that Set reads.
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

// tomlText returns the setting's value as the file would have it.
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
