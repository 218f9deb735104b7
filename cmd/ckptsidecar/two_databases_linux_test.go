package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// twoDatabases runs where /run is of the story alone: a system's daemon listens there, and later a user's own daemon.
const twoDatabases = `
mount -t tmpfs none /run || { echo "no mount"; exit; }
mkdir -m 755 /run/ckptsidecar
system=/run/ckptsidecar/ckptsidecar.sock
serve() { ckptsidecar serve --set limits.free_floor=0 "$@" >>$HOME/log 2>&1 & }
ready() { until ckptsidecar --socket $1 status >/dev/null 2>&1; do sleep 0.05; done; }
serve --db $HOME/system.db --socket $system
first=$!
ready $system
echo 1 | ckptsidecar save nightly >/dev/null
echo == no own database
ckptsidecar list nightly --format '{{.seq}}' 2>&1
mkdir -p $HOME/.local/state/ckptsidecar
touch $HOME/.local/state/ckptsidecar/ckpt.db
echo == an own database, and no own daemon
ckptsidecar list nightly 2>&1
ckptsidecar doctor 2>&1
echo == chosen
ckptsidecar --socket $system list nightly --format '{{.seq}}' 2>&1
ckptsidecar --socket $system doctor 2>&1
echo == both
serve
own=$HOME/.local/state/ckptsidecar/ckptsidecar.sock
ready $own
ckptsidecar doctor 2>&1
kill $first $!
wait
`

// TestTwoDatabasesOfOneUser: a command never begins the work of a user anew at the system's daemon because the user's own
// is away, and doctor says that there are two databases.
func TestTwoDatabasesOfOneUser(t *testing.T) {
	t.Parallel()
	home, err := os.MkdirTemp("", "two") // the path of a socket must be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	story := exec.Command("unshare", "--mount", "sh", "-c", twoDatabases)
	story.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + os.Getenv("TMPDIR"), "COLUMNS=400"}
	out, err := story.CombinedOutput()
	if err != nil || strings.Contains(string(out), "no mount") {
		t.Skipf("no namespace for mounts can be made here: %v: %s", err, out)
	}
	parts := strings.Split(string(out), "== ")
	if len(parts) != 5 {
		t.Fatalf("the story did not end: %s", out)
	}
	own := home + "/.local/state/ckptsidecar/ckpt.db"
	for i, want := range [][]string{
		{},
		{"no own database\n1\n"},
		{"refused to use the system's daemon at /run/ckptsidecar/ckptsidecar.sock: your own database " + own + " exists", "FAIL     daemon     refused to use"},
		{"chosen\n1\n", "this is the system's daemon, and you have a database of your own too: " + own},
		{"this is your own daemon, and the system's daemon at /run/ckptsidecar/ckptsidecar.sock has 1 agent of yours too"},
	} {
		for _, text := range want {
			if !strings.Contains(parts[i], text) {
				t.Errorf("%q is not in %s", text, parts[i])
			}
		}
	}
}
