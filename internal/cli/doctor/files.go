package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// lookEndpoint checks the permissions of the socket. Another check finds out whether a
// daemon answers there.
func lookEndpoint(_ context.Context, p *patient) []finding {
	if p.status == nil || p.status.Endpoint == "" {
		return []finding{skipped("no daemon answers")}
	}
	return append([]finding{ok("%s", p.status.Endpoint)}, lookModes(
		private{p.status.Endpoint, 0o007, "every user may open the socket"},
		private{filepath.Dir(p.status.Endpoint), 0o022, "other users may create a socket in the folder"},
	)...)
}

// private is a file and the permission bits that it must not have.
type private struct {
	path string
	not  fs.FileMode
	why  string
}

func lookFiles(_ context.Context, p *patient) []finding {
	if _, err := os.Lstat(p.db + ".restoring"); err == nil {
		return []finding{fail("run `ckptsidecar restore-backup` again: with the same backup it finishes, and its message names how to go back",
			"a restore-backup of %s was interrupted, and no daemon starts until another has finished it", p.db)}
	}
	info, err := os.Stat(p.db)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []finding{ok("%s does not exist yet; serve makes it", p.db)}
	case err != nil:
		return []finding{warn("run doctor as the user of the service, or as root", "%v", err)}
	}
	found := lookModes(
		private{p.db, 0o037, "other users may read or write the database"},
		private{filepath.Dir(p.db), 0o022, "other users may replace the database"},
	)
	return append([]finding{ok("%s, %s", p.db, term.Bytes(info.Size()))}, found...)
}

func lookMode(p private) []finding {
	info, err := os.Stat(p.path)
	if err != nil || info.Mode().Perm()&p.not == 0 {
		return nil
	}
	return []finding{fail(fmt.Sprintf("chmod %04o %s", info.Mode().Perm()&^p.not, p.path), "%s has mode %04o: %s", p.path, info.Mode().Perm(), p.why)}
}

// existing returns the nearest existing folder above a file.
func existing(path string) string {
	dir := filepath.Dir(path)
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// lookDisk measures a flush, because every save waits for one. A flush that takes no time
// did not happen: such a disk loses acknowledged saves when the power fails.
func lookDisk(_ context.Context, p *patient) []finding {
	dir := existing(p.db)
	took, err := timeFlush(dir)
	const do = "put the database on a local disk that honours flushes"
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []finding{ok("not timed: you may not write in %s; run doctor as the user of the service, or as root", dir)}
	case err != nil:
		return []finding{fail("repair the disk, or move the database to another one", "%s cannot be written: %v", dir, err)}
	}
	if memory, network := osfile.FileSystem(dir); network {
		return []finding{fail(do, "%s is on a network file system, where SQLite's locks and its journal do not work", dir)}
	} else if memory {
		return []finding{warn(do, "%s is in memory: everything is lost when the machine stops", dir)}
	}
	switch {
	case took < 20*time.Microsecond:
		return []finding{warn(do, "a flush takes %s: no disk is that fast, so the disk may lose acknowledged data", took)}
	case took > 50*time.Millisecond:
		return []finding{warn("expect slow saves, or move the database to a faster disk", "a flush takes %s", took.Round(time.Millisecond))}
	}
	return []finding{ok("a flush takes %s: every save waits about that long", took.Round(10*time.Microsecond))}
}

// timeFlush returns the median time of some 4 KiB appends, each flushed.
func timeFlush(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, ".ckptsidecar-doctor-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var all []time.Duration
	block := make([]byte, 4096)
	for range 21 {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

func lookSpace(_ context.Context, p *patient) []finding {
	dir := existing(p.db)
	free, total, err := osfile.DiskSpace(dir)
	const do = "free some, delete checkpoints, or set limits.max_database"
	switch {
	case err != nil:
		return []finding{warn("", "the free space of %s is unknown: %v", dir, err)}
	case free < 64<<20:
		return []finding{fail(do, "only %s are free on the disk of %s", term.Bytes(free), dir)}
	case free < 1<<30 && free < total/20:
		return []finding{warn(do, "only %s of %s are free on the disk of %s", term.Bytes(free), term.Bytes(total), dir)}
	}
	return []finding{ok("%s of %s are free", term.Bytes(free), term.Bytes(total))}
}

func lookSQLite(ctx context.Context, _ *patient) []finding {
	do := "install it for audits; saving works without it"
	if _, err := exec.LookPath("apt"); err == nil {
		do = "install it for audits: apt install sqlite3; saving works without it"
	}
	tool, err := exec.LookPath("sqlite3")
	if err != nil {
		return []finding{warn(do, "the sqlite3 command is not installed")}
	}
	out, err := exec.CommandContext(ctx, tool, "--version").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) == 0 {
		return []finding{warn(do, "%s does not report its version: %v", tool, err)}
	}
	if olderThan(fields[0], 3, 40) {
		return []finding{warn("install 3.40 or newer", "%s is version %s; the audit views need 3.40", tool, fields[0])}
	}
	return []finding{ok("%s is version %s: enough for audits", tool, fields[0])}
}

func olderThan(version string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(version, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a < major || a == major && b < minor
}
