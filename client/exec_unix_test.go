//go:build unix

package client_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// TestAgentUnderExec: an agent that another program starts for exec, such as a shell or "go run", begins with the
// plan of exec. After an error it is started again, and goes on from what it has saved.
func TestAgentUnderExec(t *testing.T) {
	t.Parallel()
	d := started(t)
	for _, test := range []struct {
		name, shell string
		beats       time.Duration
	}{
		{"json", `"$0" "$@"; exit $?`, 7 * time.Minute},
		{"bytes", `"$0" "$@"; exit $?`, 7 * time.Minute},
		{"loop", `until "$0" "$@"; do :; done`, client.DefaultHeartbeatTimeout}, // the second process claims the run itself
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			name := test.name // also the form of its state
			cmd := exec.Command(binary, "--socket", d.socket, "exec", "--agent", name, "--run", "nightly", "--backoff", "1ms", "--heartbeat-timeout", "7m", "--",
				"sh", "-c", test.shell, os.Args[0], "underExec", name)
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("exec: %v", err)
			}
			const want = "nightly fresh 0, beside fresh\nnightly resume 1, beside fresh\nnightly resume 2, beside fresh\n"
			if string(out) != want {
				t.Errorf("the agent said\n%s, want\n%s", out, want)
			}
			run, err := d.open(t).Wire().Run(t.Context(), ckpt.RunRef{Agent: name, Run: "nightly"})
			must(t, err)
			if run.Status != ckpt.RunCompleted || run.Epoch != 3 || run.Goal != "count" ||
				run.HeartbeatTimeout != ckpt.Duration(test.beats) || run.ProgressTimeout != ckpt.Duration(time.Hour) {
				t.Errorf("%+v", run)
			}
		})
	}
}

// TestNoRunNamedUnderExec: calls that name no run are about the run of exec, also after the first run of the process has ended.
func TestNoRunNamedUnderExec(t *testing.T) {
	t.Parallel()
	d := started(t)
	_, err := d.open(t).Agent("a").Save(t.Context(), "of main")
	must(t, err)
	cmd := exec.Command(binary, "--socket", d.socket, "exec", "--agent", "a", "--run", "nightly", "--", os.Args[0], "underExec", "no name")
	out, err := cmd.Output()
	must(t, err)
	const want = "nightly fresh nightly nightly 1\nnightly fresh nightly nightly 2\n"
	if string(out) != want {
		t.Errorf("the agent said\n%s, want\n%s", out, want)
	}
}
