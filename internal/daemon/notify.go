package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/notify"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// NotifyText is the value of [notify] in the settings, as a JSON object.
type NotifyText string

// UnmarshalText reads a JSON object. If it is invalid, n stays unchanged.
func (n *NotifyText) UnmarshalText(b []byte) error {
	if _, err := notify.ParseConfig(b); err != nil {
		return fmt.Errorf("is wrong: %w", err)
	}
	if *n = NotifyText(b); *n == "{}" {
		*n = ""
	}
	return nil
}

// String returns the JSON object.
func (n NotifyText) String() string {
	if n == "" {
		return "{}"
	}
	return string(n)
}

func (n *NotifyText) setTable(table map[string]any) error {
	check := func(text []byte) error {
		_, err := notify.ParseConfig(text)
		return err
	}
	var wrong tableMistakes
	for _, name := range sortedKeys(table) {
		hooks, several := table[name].(map[string]any)
		if !several {
			wrong.add(name, map[string]any{name: table[name]}, check)
		}
		for _, hook := range sortedKeys(hooks) {
			wrong.add(name+"."+hook, map[string]any{name: map[string]any{hook: hooks[hook]}}, check)
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	return n.UnmarshalText(text)
}

func (n NotifyText) toml() string { return objectTOML(n.String()) }

// hooks returns the hooks that get notices. The text was checked when it was read.
func (n NotifyText) hooks() (c notify.Config, list []db.Hook) {
	c, _ = notify.ParseConfig([]byte(n))
	for _, name := range c.Names() {
		list = append(list, db.Hook{Name: name, Types: c.Types(name)})
	}
	return c, list
}

// setHooks applies [notify].
func (s *service) setHooks() {
	config, hooks := s.daemon.Config.Notify.hooks()
	s.notifier.Store(&notify.Worker{Store: s.store, Config: config, Log: s.log, Now: s.daemon.Now})
	if err := s.store.SetHooks(hooks); err != nil {
		s.log.Error("notices for hooks that no longer exist still wait", "error", err)
	}
}

// lookInterval is how often the daemon checks the state of the storage.
const lookInterval = 2 * time.Second

// watchStorage sends a notice when a problem of the store begins.
func (s *service) watchStorage(ctx context.Context) error {
	var known troubles
	return periodic.Every(ctx, lookInterval, func(ctx context.Context) error {
		_, problems := s.store.Health()
		if known.begin(problems) {
			s.announce(ctx, ckpt.NoticeStorage, strings.Join(problems, " "))
		}
		return nil
	})
}

// troubles are the problems that the store has, without their numbers and durations, because these
// change while a problem lasts.
type troubles map[string]bool

var changing = regexp.MustCompile(`\d[\d.hmsµn]*( (bytes?|[kMG]B)\b)?`)

// begin notes the present problems, and says whether one of them is new.
func (t *troubles) begin(problems []string) (news bool) {
	now := troubles{}
	for _, problem := range problems {
		problem = changing.ReplaceAllString(problem, "")
		now[problem] = true
		news = news || !(*t)[problem]
	}
	*t = now
	return news
}

// announce puts a notice of the daemon itself into the queue. If the queue cannot be written, which can
// be the problem that the notice reports, the hooks are told once without the queue.
func (s *service) announce(ctx context.Context, kind ckpt.NoticeType, message string) {
	_, err := s.store.Announce(ctx, kind, message)
	if err == nil {
		return
	}
	id, failed := uuid.NewV7()
	n := ckpt.Notice{ID: "msg_" + id.String(), Type: kind, Timestamp: ckpt.At(s.daemon.Now()), Data: ckpt.NoticeData{Message: message}}
	body, wrong := json.Marshal(&n)
	if err := errors.Join(failed, wrong, s.notifier.Load().Straight(ctx, n, body)); err != nil {
		s.log.Error("no notice could be queued", "type", kind, "message", message, "error", err)
	}
}

// notifyStatus returns the status of notices, for each hook in the settings and for hooks that are no
// longer there.
func (s *service) notifyStatus(ctx context.Context) (*ckpt.NotifyStatus, error) {
	st, err := s.store.NotifyStatus(ctx)
	if err != nil {
		return nil, err
	}
	config := &s.notifier.Load().Config
	found := map[string]bool{}
	for i := range st.Hooks {
		found[st.Hooks[i].Name] = true
		st.Hooks[i].Kind = config.Kind(st.Hooks[i].Name)
	}
	for _, name := range config.Names() {
		if !found[name] {
			st.Hooks = append(st.Hooks, ckpt.HookStatus{Name: name, Kind: config.Kind(name)})
		}
	}
	return st, nil
}

// lateNotice is how long a notice can wait before the delay counts as a problem.
const lateNotice = 10 * time.Minute

// notifyProblems lists the hooks that cannot be reached.
func notifyProblems(st *ckpt.NotifyStatus, now time.Time) (problems []string) {
	for _, h := range st.Hooks {
		late := !h.Oldest.IsZero() && now.Sub(h.Oldest.Time) > lateNotice
		if h.Kind == "" || h.Dead == 0 && !late { // without a kind it is no longer in the settings, as somebody decided
			continue
		}
		problems = append(problems, fmt.Sprintf("the hook %s of [notify] could not be reached: %d notices wait, %d were given up; the last error: %s",
			h.Name, h.Pending, h.Dead, h.LastError))
	}
	if st.Dropped > 0 {
		problems = append(problems, fmt.Sprintf("%d notices were dropped, because too many waited", st.Dropped))
	}
	return problems
}
