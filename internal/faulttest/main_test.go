//go:build unix

package faulttest

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"github.com/ckptsidecar/ckptsidecar/internal/faulttest/mutants"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

var (
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of all that is random, to play a failure again")
	rounds = flag.Int("rounds", 6, "how often TestKillNine kills the daemon")
)

// plays maps the name of an environment variable to the role that the test
// program plays, in its own process, if that variable is set.
var plays = map[string]func(string) error{answersVariable: playAnswers, beatsVariable: playBeats}

// program is the daemon under test. It is built once per run.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(relayVariable) != "" { // this process plays another user
		os.Exit(relay(os.Stdin, os.Stdout))
	}
	for variable, play := range plays {
		if setting := os.Getenv(variable); setting != "" { // this process plays an agent
			if err := play(setting); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	flag.Parse()
	// The harness also opens databases directly, some of them before the store
	// opens any. The kind of locks must be set by then.
	if _, err := driver.OFDLocking(true); err != nil && !errors.Is(err, driver.ErrOFDLockingUnavailable) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	run := testenv.Run
	if *matrix != "" {
		run = testenv.RunOnDisk // the matrix must prove its results on a real file system
	}
	os.Exit(run(func() int {
		code, err := buildAndRun(m)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return code
	}))
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "ft")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "ckptsidecar")
	// Under the race detector, the daemon is looked at too: if it finds a race, it writes it to its log, and the test fails.
	build := exec.Command("go", "build", fmt.Sprintf("-race=%t", testenv.RaceDetector()), "-overlay", os.Getenv(mutants.OverlayVariable), "-o", program, "../../cmd/ckptsidecar")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("the program does not build: %w", err)
	}
	code := m.Run()
	fmt.Print(summary)
	return code, nil
}

// newRand returns a random source for one test or client, and logs its seed for
// the test.
func newRand(t *testing.T, stream uint64) *rand.Rand {
	t.Helper()
	if stream == 0 {
		t.Logf("seed %d (-seed)", *seed)
	}
	return rand.New(rand.NewPCG(*seed, stream))
}
