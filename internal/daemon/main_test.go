package daemon

import (
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

func TestMain(m *testing.M) {
	if !beSomethingElse() {
		testenv.Main(m)
	}
}
