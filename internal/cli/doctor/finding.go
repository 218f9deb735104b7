package doctor

import (
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// finding is the result of one check.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`

	skipped string // why the check did not look, "" if it did
}

type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

func ok(format string, args ...any) finding {
	return finding{Level: levelOK, What: fmt.Sprintf(format, args...)}
}

// skipped returns the finding of a check that did not look. In JSON, its level stays
// "ok".
func skipped(format string, args ...any) finding {
	f := ok("not looked at: "+format, args...)
	f.skipped = fmt.Sprintf(format, args...)
	return f
}

func warn(do, format string, args ...any) finding {
	return finding{Level: levelWarn, What: fmt.Sprintf(format, args...), Do: do}
}

func fail(do, format string, args ...any) finding {
	return finding{Level: levelFail, What: fmt.Sprintf(format, args...), Do: do}
}

// patient is the information about the machine that several checks need.
type patient struct {
	app    *cli.App
	db     string
	status *ckpt.Status // nil if no daemon answers
	failed error        // why no daemon answers
}
