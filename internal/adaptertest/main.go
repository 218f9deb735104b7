package adaptertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// binary is the real program, built once.
var binary string

// Main runs the tests of an adapter in the folder adapters/NAME. Where the test binary
// is started with the name of one of programs, it plays that program instead, with the
// arguments that follow.
func Main(m *testing.M, programs map[string]func(args []string)) {
	if len(os.Args) > 1 {
		if program := programs[os.Args[1]]; program != nil {
			program(os.Args[2:])
			return
		}
	}
	os.Exit(testenv.Run(func() int { return built(m.Run) }))
}

// built builds the program, and runs the tests.
func built(tests func() int) int {
	dir, err := os.MkdirTemp("", "built")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ckptsidecar")
	build := exec.Command("go", "build", "-o", binary, "./cmd/ckptsidecar")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return tests()
}
