package hook_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// one is the input of Claude Code for a tool call. Each n gives a different
// one.
func one(event string, n int) []byte {
	result := ""
	if event == "PostToolUse" {
		result = fmt.Sprintf(`,"tool_response":{"stdout":"line %d","stderr":""}`, n)
	}
	return fmt.Appendf(nil, `{"session_id":"bench","transcript_path":"","cwd":"/home/kim/shop","permission_mode":"default","hook_event_name":%q,"tool_name":"Bash","tool_input":{"command":"sed -n %dp a.go"},"tool_use_id":"toolu_%d"%s}`,
		event, n, n, result)
}

// BenchmarkHandle measures the beginning and the end of a call, without a
// process.
func BenchmarkHandle(b *testing.B) {
	h := newHandler(b)
	n := 0
	for b.Loop() {
		for _, event := range []string{"PreToolUse", "PostToolUse"} {
			in, err := hook.Read(one(event, n))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := h.Handle(b.Context(), in); err != nil {
				b.Fatal(err)
			}
		}
		n++
	}
}

// BenchmarkHookProcess measures one hook as a coding agent runs it: a process,
// from its start to its end. Besides the mean it reports the median, the 99th
// percentile, and the processor time, which does not depend on the load of the
// machine.
func BenchmarkHookProcess(b *testing.B) {
	socket := newDaemon(b)
	for _, event := range []string{"PreToolUse", "PostToolUse"} {
		b.Run(event, func(b *testing.B) { hookProcesses(b, socket, event) })
	}
	b.Run("NoDaemon", func(b *testing.B) { hookProcesses(b, socket+"-none", "PostToolUse") })
}

var benched int // so that no call is made twice

func hookProcesses(b *testing.B, socket, event string) {
	var took []time.Duration
	var used time.Duration
	for b.Loop() {
		benched++
		cmd := exec.Command(binary, "hook", "--for", "claude-code", "--agent", "bench", "--socket", socket)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(one(event, benched)), os.Stderr
		began := time.Now()
		out, err := cmd.Output()
		took = append(took, time.Since(began))
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if err != nil || len(out) > 0 {
			b.Fatalf("%s, error %v", out, err)
		}
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1000 }
	b.ReportMetric(used.Seconds()*1000/float64(len(took)), "cpu-ms")
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
}
