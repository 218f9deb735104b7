package doctor

import (
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
