package notify

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Config is the value of the setting notify.
type Config struct {
	Webhooks map[string]Webhook `json:"webhooks,omitempty"`
	Commands map[string]Command `json:"commands,omitempty"`
	// Retry is the pause before the second attempt. Each later pause is four times as long, up to two
	// hours.
	Retry ckpt.Duration `json:"retry,omitempty"`
}

// Webhook is a server that gets notices over HTTP.
type Webhook struct {
	URL        string            `json:"url"`
	SecretFile string            `json:"secret_file"`       // the file with the key for the signatures
	CAFile     string            `json:"ca_file,omitempty"` // certificates to trust in addition to the system's
	Events     []ckpt.NoticeType `json:"events,omitempty"`  // none means all
	Timeout    ckpt.Duration     `json:"timeout,omitempty"`
}

// Command is a program that is started with the notice on its standard input.
type Command struct {
	Run     []string          `json:"run"` // the absolute path of the program, and its arguments; no shell
	Events  []ckpt.NoticeType `json:"events,omitempty"`
	Timeout ckpt.Duration     `json:"timeout,omitempty"`
}

// Limits and defaults of a configuration.
const (
	maxHooks       = 16
	maxTimeout     = ckpt.Duration(time.Minute)
	defaultTimeout = ckpt.Duration(10 * time.Second)
	defaultRetry   = ckpt.Duration(time.Second)
)

var hookName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// ParseConfig reads a configuration and fills in the defaults, or returns what is wrong with it.
func ParseConfig(text []byte) (Config, error) {
	c := Config{Retry: defaultRetry}
	if len(text) == 0 {
		return c, nil
	}
	if err := jsontext.Decode(text, &c); err != nil {
		return c, err
	}
	if len(c.Webhooks)+len(c.Commands) > maxHooks {
		return c, fmt.Errorf("there are %d hooks: at most %d are allowed", len(c.Webhooks)+len(c.Commands), maxHooks)
	}
	if c.Retry <= 0 || c.Retry > ckpt.Duration(time.Hour) {
		return c, fmt.Errorf("retry is %s: it must be at most 1h", c.Retry)
	}
	for name, w := range c.Webhooks {
		if err := w.check(); err != nil {
			return c, fmt.Errorf("the webhook %q: %w", name, err)
		}
		if err := checkHook(name, &w.Events, &w.Timeout); err != nil {
			return c, err
		}
		c.Webhooks[name] = w
	}
	for name, command := range c.Commands {
		if _, twice := c.Webhooks[name]; twice {
			return c, fmt.Errorf("two hooks have the name %q", name)
		}
		if len(command.Run) == 0 || !filepath.IsAbs(command.Run[0]) {
			return c, fmt.Errorf("the command %q: run must be a list that begins with the absolute path of a program", name)
		}
		if err := checkHook(name, &command.Events, &command.Timeout); err != nil {
			return c, err
		}
		c.Commands[name] = command
	}
	return c, nil
}

func checkHook(name string, events *[]ckpt.NoticeType, timeout *ckpt.Duration) error {
	if !hookName.MatchString(name) {
		return fmt.Errorf("the name %q of a hook must be 1 to 32 characters of a-z, 0-9, _ and -", name)
	}
	for _, event := range *events {
		if !slices.Contains(ckpt.NoticeTypes, event) {
			return fmt.Errorf("the hook %q: there is no event %q: the events are %v", name, event, ckpt.NoticeTypes)
		}
	}
	if len(*events) == 0 {
		*events = ckpt.NoticeTypes
	}
	if *timeout == 0 {
		*timeout = defaultTimeout
	}
	if *timeout < 0 || *timeout > maxTimeout {
		return fmt.Errorf("the hook %q: timeout is %s: it must be at most %s", name, *timeout, maxTimeout)
	}
	return nil
}

func (w *Webhook) check() error {
	u, err := url.Parse(w.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return fmt.Errorf("url is not an address: give one such as https://hooks.example.com/ckpt")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("url is http, which is allowed only for 127.0.0.1, ::1 and localhost: use https")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("url must begin with https://")
	case !filepath.IsAbs(w.SecretFile):
		return fmt.Errorf("secret_file must be the absolute path of a file with the signing key; make one with: openssl rand -base64 32")
	case w.CAFile != "" && !filepath.IsAbs(w.CAFile):
		return fmt.Errorf("ca_file must be the absolute path of a file")
	}
	return nil
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// Names returns the names of all hooks, sorted.
func (c *Config) Names() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, some := range [][]string{slices.Collect(maps.Keys(c.Webhooks)), slices.Collect(maps.Keys(c.Commands))} {
			for _, name := range some {
				if !yield(name) {
					return
				}
			}
		}
	})
}

// Types returns the types of notices that a hook wants.
func (c *Config) Types(name string) []ckpt.NoticeType {
	if w, is := c.Webhooks[name]; is {
		return w.Events
	}
	return c.Commands[name].Events
}

// Kind returns webhook or command, "" if there is no such hook.
func (c *Config) Kind(name string) string {
	if _, is := c.Webhooks[name]; is {
		return "webhook"
	}
	if _, is := c.Commands[name]; is {
		return "command"
	}
	return ""
}
