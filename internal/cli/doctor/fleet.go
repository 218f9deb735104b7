package doctor

import (
	"context"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// lookFleet reports the status of shipping to a fleet's engine, and who can read the data
// there. It reports nothing to users who may not ask.
func lookFleet(ctx context.Context, p *patient) []finding {
	if p.status == nil {
		return nil
	}
	s, err := client.Operator{Client: p.app.Client()}.Fleet(ctx)
	if err != nil || !s.On {
		return nil
	}
	return fleetFindings(s)
}

func fleetFindings(s *fleet.Status) (found []finding) {
	switch s.State {
	case fleet.StateShipping, fleet.StateConnecting:
		found = append(found, ok("this host is %s in the fleet, and %s", s.Name, s.State))
	default:
		found = append(found, warn("see ckptsidecar fleet status", "nothing is shipped to the fleet's engine: %s: %s", s.State, s.Error))
	}
	if len(s.Noticed) > 0 {
		found = append(found, warn("see ckptsidecar fleet check",
			"the fleet's engine went back, as these hosts noticed: %s; no host claims by itself", strings.Join(s.Noticed, ", ")))
	}
	if s.Clear && s.State == fleet.StateShipping {
		found = append(found, warn("make keys with ckptsidecar fleet keys add, and set fleet.key_file",
			"states and texts are stored in the clear in the fleet's engine: whoever can read it reads them"))
	}
	return found
}
