package doctor

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// lookSpool counts this user's writes that no daemon has.
func lookSpool(context.Context, *patient) []finding {
	waiting, refused, err := client.CountSpool("")
	if err != nil {
		return []finding{warn("let it belong to you, and to nobody else", "the spool cannot be read: %v", err)}
	}
	var found []finding
	if waiting > 0 {
		found = append(found, warn("send them when the daemon answers: ckptsidecar spool replay", "%s of yours not sent", term.Count(int64(waiting), "write")))
	}
	if refused > 0 {
		found = append(found, warn("see why with `ckptsidecar spool list` and the .json file beside each, then remove both",
			"%s of yours refused for good", term.Count(int64(refused), "write")))
	}
	if found == nil {
		found = append(found, ok("no write of yours waits"))
	}
	return found
}
