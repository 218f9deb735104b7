package transfercmd

import (
	"os"
	"os/exec"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestProcessLives(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$") // any program that ends at once
	cmd.Env = append(os.Environ(), testenv.Marker+"=")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if !processLives(os.Getpid()) || processLives(cmd.Process.Pid) {
		t.Error("who lives is taken for dead, or the other way round")
	}
}
