package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/service"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// lookService checks what starts the daemon: first the system's service, then the user's
// own.
func lookService(ctx context.Context, p *patient) []finding {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, user := range []bool{false, true} {
		host, err := service.NewHost(p.app, user)
		if err != nil {
			return []finding{{Level: levelOK, What: err.Error(), skipped: err.Error()}}
		}
		s, err := host.Status(ctx)
		if err != nil || !s.Installed {
			continue
		}
		return serviceFindings(s)
	}
	return []finding{ok("no service is installed; `ckptsidecar service install` starts the daemon at boot and after a crash")}
}

func serviceFindings(s *service.Status) []finding {
	what := fmt.Sprintf("the %s's service is %s", s.Scope, s.State)
	var found []finding
	switch {
	case !s.Running && s.Result != "":
		found = append(found, fail("read its log: "+s.Log, "%s, after %s", what, s.Result))
	case !s.Running:
		found = append(found, warn("ckptsidecar service start", "%s", what))
	case s.Restarts > 0:
		found = append(found, warn("read its log: "+s.Log, "%s, and was restarted %s", what, term.Count(s.Restarts, "time")))
	default:
		found = append(found, ok("%s", what))
	}
	if !s.Enabled {
		found = append(found, warn("ckptsidecar service install", "it does not start by itself"))
	}
	if strings.Contains(s.Files, "`ckptsidecar service install`") {
		found = append(found, warn("ckptsidecar service install", "%s", s.Files))
	}
	return found
}

func lookBackups(_ context.Context, p *patient) []finding {
	const do = "set backup.interval, or copy the database with `ckptsidecar backup` from time to time"
	if p.status == nil {
		return []finding{skipped("no daemon answers")}
	}
	b, now := &p.status.Backup, p.status.Now.Time
	switch {
	case b.Folder == "":
		return []finding{skipped("only an administrator may see this")}
	case b.Interval == 0 && b.Kept == 0:
		return []finding{warn(do, "no backups are scheduled: a damaged database could not be replaced")}
	case b.LastError != "":
		return []finding{fail("fix the cause, and read "+b.Folder, "the last one failed: %s", b.LastError)}
	case b.AfterError != "":
		return []finding{fail("run the program backup.after by hand with the newest backup of "+b.Folder, "backup.after did not take the newest one: %s", b.AfterError)}
	case b.DrillError != "":
		return []finding{fail("verify the backups, and make a new one: ckptsidecar backup FILE", "one could not be restored on trial: %s", b.DrillError)}
	case b.Last.IsZero():
		return []finding{ok("one every %v; the first comes about a minute after the start", b.Interval)}
	case b.Interval > 0 && now.Sub(b.Last.Time) > 2*time.Duration(b.Interval)+time.Hour:
		return []finding{warn("read the daemon's log", "the last one was made %s, though one is due every %v",
			term.Ago(now, b.Last.Time), b.Interval)}
	}
	found := ok("%d in %s, the last of %s, %s", b.Kept, b.Folder, term.Ago(now, b.Last.Time), term.Bytes(b.LastBytes))
	if sameDisk(b.Folder, p.db) {
		found.What += ", on the same disk as the database"
		found.Do = "set backup.folder to another disk, or copy the backups to one"
	}
	return []finding{found}
}
