package daemon

import (
	"errors"
	"fmt"
)

// Environment applies the CKPTSIDECAR_* variables to c. An empty variable counts as not set.
func (c *Config) Environment(env Environment) error {
	var mistakes []error
	for _, s := range c.Settings() {
		text := env(s.Env)
		if text == "" {
			continue
		}
		if err := s.setText(text); err != nil {
			mistakes = append(mistakes, fmt.Errorf("the environment variable %s is wrong: %w", s.Env, err))
			continue
		}
		c.setBy(s.Key, s.Env)
	}
	return errors.Join(mistakes...)
}

// DefaultFile returns the path of the configuration file that is read if none is named. It is ""
// if the environment names no folder for it.
func DefaultFile(system bool, env Environment) string {
	return defaultPaths(system, env).config
}
