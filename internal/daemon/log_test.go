package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestALogWithFieldsGetsThem(t *testing.T) {
	var got []entry
	var fallback bytes.Buffer
	broken := false
	level := new(slog.LevelVar)
	h := newSending(level, func(e entry) error {
		if broken {
			return errors.New("the journal is away")
		}
		got = append(got, e)
		return nil
	}, slog.NewTextHandler(&fallback, nil))
	log := slog.New(h).With("component", "x").WithGroup("request").With("route", "save")
	log.Info("done", "took", 7, slog.Group("who", "owner", "uid:7"), "note", "two words")
	log.Debug("too quiet")
	if len(got) != 1 {
		t.Fatalf("%d lines were sent", len(got))
	}
	want := `component=x request.route=save request.took=7 request.who.owner=uid:7 request.note="two words"`
	if got[0].message != "done" || got[0].text != want {
		t.Errorf("sent %q with %s, want %s", got[0].message, got[0].text, want)
	}
	broken = true
	log.Warn("still said")
	if text := fallback.String(); !strings.Contains(text, "still said") || !strings.Contains(text, "request.route=save") {
		t.Errorf("what the journal did not take is lost: %q", text)
	}
}

func TestFormsOfTheLog(t *testing.T) {
	for form, check := range map[string]func(string) bool{
		LogText: func(s string) bool { return strings.Contains(s, "level=WARN msg=hello n=1") },
		LogAuto: func(s string) bool { return strings.Contains(s, "level=WARN msg=hello n=1") }, // a test has no journal
		LogJSON: func(s string) bool { return json.Valid([]byte(s)) && strings.Contains(s, `"n":1`) },
	} {
		var b bytes.Buffer
		c := Config{LogFormat: form, LogLevel: "warn"}
		log, level := c.Logger(&b, false)
		log.Info("quiet")
		log.Warn("hello", "n", 1)
		if !check(b.String()) || strings.Contains(b.String(), "quiet") {
			t.Errorf("%s: %s", form, b.String())
		}
		level.Set(slog.LevelDebug)
		if log.Debug("loud"); !strings.Contains(b.String(), "loud") {
			t.Errorf("%s: the level cannot be changed", form)
		}
	}
}
