package client

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLocksOfOtherContainers: containers can have one name of a machine, and the numbers of their processes are their own. So a
// number of another process namespace says nothing.
func TestLocksOfOtherContainers(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const gone = 1<<22 + 1 // no process has a greater number than 1<<22
	for host, stale := range map[string]bool{lockHost(): true, machine: false, machine + " pid:[1]": false} {
		note, err := json.Marshal(lockNote{gone, host, "t"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, lockName), note, 0o600); err != nil {
			t.Fatal(err)
		}
		limit := time.Minute
		if !stale {
			limit = 3 * lockPause
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		taken, err := takeLock(ctx, dir)
		cancel()
		if (err == nil) != stale {
			t.Errorf("%s: the lock is stale: %t, %v", host, err == nil, err)
		}
		if err == nil {
			taken.leave()
		}
	}
}
