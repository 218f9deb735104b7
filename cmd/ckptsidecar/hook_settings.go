package main

import (
	"fmt"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// hookSettings are what a hook can be told on its command line; install writes
// them there.
type hookSettings struct {
	Agent     string   `help:"Whose runs they are. Default: $$CKPTSIDECAR_AGENT, then the name of the project folder with a short hash of its path." placeholder:"NAME"`
	Risky     []string `sep:"none" help:"A regular expression for calls that are risky, beside those that come with the program; held against TOOL ARGUMENTS, and for commands against shell COMMAND. May be repeated." placeholder:"REGEX"`
	NotRisky  []string `sep:"none" help:"One for calls that are not risky all the same. May be repeated." placeholder:"REGEX"`
	OnlyRisky bool     `help:"Take --risky instead of what comes with the program."`
	SaveEvery int64    `default:"20" help:"Save a checkpoint after so many tool calls; 0 for never." placeholder:"N"`
}

func (s *hookSettings) risky() *hook.Risky {
	return hook.NewRisky(s.Risky, s.NotRisky, s.OnlyRisky)
}

// check finds mistakes before they are written into anybody's settings.
func (s *hookSettings) check() error {
	err := s.risky().Check()
	if s.SaveEvery < 0 {
		err = fmt.Errorf("--save-every is %d: it cannot be less than 0", s.SaveEvery)
	}
	return cli.Checked(err, cli.Given(s.Agent, ckpt.CheckAgentName))
}

// words are the settings as a command line has them.
func (s *hookSettings) words() (words []string) {
	if s.Agent != "" {
		words = append(words, "--agent", s.Agent)
	}
	for _, p := range s.Risky {
		words = append(words, "--risky", p)
	}
	for _, p := range s.NotRisky {
		words = append(words, "--not-risky", p)
	}
	if s.OnlyRisky {
		words = append(words, "--only-risky")
	}
	if s.SaveEvery != 20 {
		words = append(words, "--save-every", strconv.FormatInt(s.SaveEvery, 10))
	}
	return words
}

// forProduct is which coding agent it is about.
type forProduct struct {
	For string `enum:",claude-code,codex,gemini" default:"" help:"Which coding agent: claude-code, codex or gemini." placeholder:"PRODUCT"`
}
