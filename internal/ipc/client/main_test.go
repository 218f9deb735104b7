package client

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// checked looks for goroutines that are left after all tests have run.
type checked struct{ m *testing.M }

func (c checked) Run() int { return testenv.Run(c.m.Run) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(checked{m}) }
