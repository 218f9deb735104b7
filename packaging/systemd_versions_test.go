package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// newerThan239 are the directives of services and sockets that systemd 239 does not know, with the version that does.
var newerThan239 = map[string]string{
	"RestrictSUIDSGID": "242", "ProtectHostname": "242", "TimeoutAbortSec": "243", "ProtectKernelLogs": "244", "OOMPolicy": "243",
	"ProtectClock": "245", "RootImageOptions": "247", "ProtectProc": "247", "ProcSubset": "247", "PrivateIPC": "248",
	"RestrictFileSystems": "250", "LogFilterPatterns": "253", "MemoryZSwapMax": "253", "RestartSteps": "254", "RestartMaxDelaySec": "254",
	"RestartMode": "254", "CoredumpReceive": "255", "MemoryPressureWatch": "254", "SurviveFinalKillSignal": "255",
}

// TestOldSystemdIsDescribed: docs/OPERATIONS.md names each directive of our units that systemd 239 does not know.
func TestOldSystemdIsDescribed(t *testing.T) {
	page, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir("systemd", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^([A-Z][A-Za-z]+)=`).FindAllStringSubmatch(string(text), -1) {
			if since := newerThan239[m[1]]; since != "" {
				found++
				if !strings.Contains(string(page), "`"+m[1]+"=`") {
					t.Errorf("%s has %s=, which systemd knows since %s, and docs/OPERATIONS.md does not say so", path, m[1], since)
				}
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d directives were found, %v", found, err)
	}
}
