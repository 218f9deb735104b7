package hookcmd

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// options are the options of a hook on its command line. install writes them there.
type options struct {
	Agent     string   `help:"Whose runs. Default: $$CKPTSIDECAR_AGENT, then the project folder's name and a hash of its path." placeholder:"NAME"`
	Risky     []string `sep:"none" help:"More risky calls: a regular expression on TOOL ARGUMENTS, or shell COMMAND." placeholder:"REGEX"`
	NotRisky  []string `sep:"none" help:"A regular expression for calls that are not risky after all. May be repeated." placeholder:"REGEX"`
	OnlyRisky bool     `help:"Use --risky instead of the built-in expressions."`
	SaveEvery int64    `default:"20" help:"Save a checkpoint after every N tool calls; 0 for never." placeholder:"N"`

	Timeout time.Duration `help:"How long the agent waits for it, 50ms to 20s. Default: $$CKPTSIDECAR_HOOK_TIMEOUT, then 300ms." placeholder:"TIME"`

	Files     bool          `help:"Save the project's files with the checkpoints. See docs/FILES.md."`
	FilesWait time.Duration `default:"2s" help:"How long a risky call waits for its files to be saved." placeholder:"TIME"`
	Prompts   int           `default:"200" help:"How many prompts of the project keep their files; 0 for all. The policy's pre_operation_keep says how long." placeholder:"N"`
	Include   []string      `sep:"none" name:"files-include" help:"Ignored files to save, besides $$CKPTSIDECAR_FILES_INCLUDE." placeholder:"PATTERN"`
	Exclude   []string      `sep:"none" name:"files-exclude" help:"Files to skip, besides $$CKPTSIDECAR_FILES_EXCLUDE." placeholder:"PATTERN"`
}

func (s *options) risky() *hook.Risky {
	return hook.NewRisky(s.Risky, s.NotRisky, s.OnlyRisky)
}

// check finds mistakes before they are written into a user's settings.
func (s *options) check() error {
	err := s.risky().Check()
	if s.SaveEvery < 0 {
		err = fmt.Errorf("--save-every must be 0 or more; got %d", s.SaveEvery)
	}
	if s.Timeout != 0 && !isTimeout(s.Timeout) {
		err = fmt.Errorf("--timeout is %s; it must be between %s and %s", s.Timeout, leastTimeout, mostTimeout)
	}
	if s.FilesWait < 0 || s.FilesWait > mostFilesWait {
		err = fmt.Errorf("--files-wait is %s; it must be between 0 and %s", s.FilesWait, mostFilesWait)
	}
	if s.Prompts < 0 {
		err = fmt.Errorf("--prompts must be 0 or more; got %d", s.Prompts)
	}
	if !s.Files && len(s.Include)+len(s.Exclude) > 0 {
		err = fmt.Errorf("--files-include and --files-exclude need --files: add it")
	}
	return cli.Checked(err, cli.Given(s.Agent, ckpt.CheckAgentName))
}

// words returns the options for a command line.
func (s *options) words() (words []string) {
	if s.Agent != "" {
		words = append(words, "--agent", s.Agent)
	}
	words = appendOptions(words, "--risky", patterns(runtime.GOOS, s.Risky))
	words = appendOptions(words, "--not-risky", patterns(runtime.GOOS, s.NotRisky))
	if s.OnlyRisky {
		words = append(words, "--only-risky")
	}
	if s.SaveEvery != 20 {
		words = append(words, "--save-every", strconv.FormatInt(s.SaveEvery, 10))
	}
	if s.Timeout != 0 {
		words = append(words, "--timeout", s.Timeout.String())
	}
	if s.Files {
		words = append(words, "--files")
		if s.FilesWait != usualFilesWait {
			words = append(words, "--files-wait", s.FilesWait.String())
		}
		if s.Prompts != usualPrompts {
			words = append(words, "--prompts", strconv.Itoa(s.Prompts))
		}
	}
	words = appendOptions(words, "--files-include", s.Include)
	return appendOptions(words, "--files-exclude", s.Exclude)
}

func appendOptions(words []string, name string, values []string) []string {
	for _, value := range values {
		if strings.HasPrefix(value, "-") { // as its own word it would be read as a flag
			words = append(words, name+"="+value)
			continue
		}
		words = append(words, name, value)
	}
	return words
}

// How long a risky call waits for its files: by default, and at most.
const (
	usualFilesWait = 2 * time.Second
	mostFilesWait  = 20 * time.Second
)

const usualPrompts = 200 // keep their files

// How long an agent waits for a hook: by default, at least and at most.
const (
	usualTimeout = 300 * time.Millisecond
	leastTimeout = 50 * time.Millisecond
	mostTimeout  = 20 * time.Second
)

func isTimeout(d time.Duration) bool { return d >= leastTimeout && d <= mostTimeout }

// timeout returns how long the hook may take. A wrong value is ignored, because a hook
// never fails.
func (s *options) timeout(env func(string) string) time.Duration {
	if isTimeout(s.Timeout) {
		return s.Timeout
	}
	if d, err := time.ParseDuration(env("CKPTSIDECAR_HOOK_TIMEOUT")); err == nil && isTimeout(d) {
		return d
	}
	return usualTimeout
}

// most returns how long a risky call may take, which is the longest.
func (s *options) most(env func(string) string) time.Duration {
	if s.Files {
		return s.timeout(env) + s.FilesWait
	}
	return s.timeout(env)
}

// forProduct says which coding agent the command is about.
type forProduct struct {
	For string `enum:",claude-code,codex,gemini" default:"" help:"Which coding agent: claude-code, codex or gemini." placeholder:"PRODUCT"`
}
