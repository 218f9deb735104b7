package fleetcmd

import (
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
)

type keysCmd struct {
	List keysListCmd `cmd:"" help:"List the keys. Shows no key itself."`
	Add  keysAddCmd  `cmd:"" help:"Add a new key, which seals from now on."`
}

// Help returns the additional text of `fleet keys --help`.
func (*keysCmd) Help() string {
	return `The key file has one key a line: an id, and 32 bytes as base64. The last key seals what is
shipped. Older ones open what they have sealed.

Copy the file to every host of the fleet, with mode 0600, and keep a copy away from the hosts: what
is sealed is lost with its keys. Reload the daemon after a change.`
}

// keyFlags identify the key file.
type keyFlags struct {
	File   string `help:"The key file. Default: what fleet.key_file names." placeholder:"PATH"`
	System bool   `help:"Read the settings of the system service."`
}

func (f *keyFlags) find(a *cli.App) (string, error) {
	if f.File != "" {
		return f.File, nil
	}
	config, err := (&cli.SettingFlags{System: f.System}).Settings(a)
	switch {
	case err != nil:
		return "", err
	case config.FleetKeys == "":
		return "", cli.Usagef("fleet.key_file is not set: set it, or give --file PATH")
	case strings.HasPrefix(config.FleetKeys, host.Credential):
		return "", cli.Usagef("fleet.key_file is %s: give the file that the unit loads with --file PATH", config.FleetKeys)
	}
	return config.FleetKeys, nil
}

type keysListCmd struct {
	keyFlags `embed:""`
}

func (c *keysListCmd) Run(a *cli.App) error {
	path, err := c.find(a)
	if err != nil {
		return err
	}
	all, err := host.Keys(path)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	}
	t := term.NewTable("ID", "STATE")
	for _, k := range all.Keys {
		state := "opens"
		if k.Seals {
			state = "seals"
		}
		t.Add(k.ID, state)
	}
	t.Write(a.Stdout, a.Out)
	return nil
}

type keysAddCmd struct {
	keyFlags `embed:""`
	ID       string `help:"The key's id. Default: today's date and a few letters." placeholder:"ID"`
}

func (c *keysAddCmd) Run(a *cli.App) error {
	path, err := c.find(a)
	if err != nil {
		return err
	}
	id, err := host.AddKey(path, c.ID, time.Now())
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(map[string]string{"file": path, "id": id})
	}
	term.Printf(a.Stdout, "%s  key %s in %s; copy the file to the other hosts, and reload their daemons\n", a.Out.Green("added"), id, path)
	return nil
}
