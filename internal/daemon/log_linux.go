package daemon

import (
	"log/slog"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
)

// managersLog returns the journal if standard error goes there, else nil. Writing to the
// journal directly keeps each field, so that `journalctl CKPT_ERROR=…` finds it.
func managersLog(bool) func(entry) error {
	if is, err := journal.StderrIsJournalStream(); err != nil || !is || !journal.Enabled() {
		return nil
	}
	return func(e entry) error {
		fields := map[string]string{"SYSLOG_IDENTIFIER": "ckptsidecar"}
		for _, f := range e.fields {
			fields[journalName(f.Key)] = f.Value.String()
		}
		message := e.message
		if e.text != "" {
			message += ": " + e.text
		}
		return journal.Send(message, priority(e.level), fields)
	}
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// journalName turns "request.route" into CKPT_REQUEST_ROUTE: the journal accepts only
// capitals, digits and underscores.
func journalName(key string) string {
	return "CKPT_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}
