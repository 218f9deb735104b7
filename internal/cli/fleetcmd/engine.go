package fleetcmd

import "github.com/ckptsidecar/ckptsidecar/internal/cli"

// engineFlags identify an engine: by its URL, or by the settings.
type engineFlags struct {
	URL    string `arg:"" optional:"" name:"url" help:"${engine_url}"`
	System bool   `help:"Read the settings of the system service."`
}

func (f *engineFlags) find(a *cli.App) (string, error) {
	if f.URL != "" {
		return f.URL, nil
	}
	config, err := (&cli.SettingFlags{System: f.System}).Settings(a)
	if err != nil {
		return "", err
	}
	c := config.Fleet(a.Env, a.Version)
	url, err := c.URL()
	if err != nil {
		return "", cli.Usagef("%v", err)
	}
	return url, nil
}
