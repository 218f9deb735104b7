package daemon

import (
	"log/slog"

	"golang.org/x/sys/windows/svc/eventlog"
)

// EventSource is the name under which a service writes to the event log.
const EventSource = "ckptsidecar"

// The event numbers, for programs that watch the event log. docs/WINDOWS.md has the same
// list.
const (
	eventInfo    = 1
	eventWarning = 2
	eventError   = 3
	eventReady   = 10
	eventStopped = 11
	eventFault   = ExitFault
)

// managersLog returns the event log for a service, else nil.
func managersLog(service bool) func(entry) error {
	if !service {
		return nil
	}
	log, err := eventlog.Open(EventSource)
	if err != nil {
		return nil
	}
	return func(e entry) error {
		text := e.message
		if e.text != "" {
			text += "\r\n\r\n" + e.text
		}
		switch {
		case e.level >= slog.LevelError:
			return log.Error(eventNumber(e), text)
		case e.level >= slog.LevelWarn:
			return log.Warning(eventNumber(e), text)
		}
		return log.Info(eventNumber(e), text)
	}
}

func eventNumber(e entry) uint32 {
	switch {
	case e.message == messageReady:
		return eventReady
	case e.message == messageStopped:
		return eventStopped
	case e.message == MessageEnded:
		return eventFault
	case e.level >= slog.LevelError:
		return eventError
	case e.level >= slog.LevelWarn:
		return eventWarning
	}
	return eventInfo
}
