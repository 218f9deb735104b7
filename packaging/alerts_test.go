package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// alertCase is one alert of the rules: the series with which it fires after some time, and those
// with which it stays quiet. Each series is NAME{LABELS}=VALUES in promtool's notation, one value a minute.
type alertCase struct {
	alert, after string
	fires, quiet []string
	summary      string // part of the summary that it fires with
}

var alertCases = []alertCase{
	{"Down", "10m", []string{`up{job="ckptsidecar"}=0x30`}, []string{`up{job="ckptsidecar"}=1x30`}, "does not answer"},
	{"NotReady", "10m", []string{`ckptsidecar_state{state="degraded"}=1x30`, `ckptsidecar_state{state="ready"}=0x30`},
		[]string{`ckptsidecar_state{state="degraded"}=0x30`, `ckptsidecar_state{state="ready"}=1x30`}, "is degraded"},
	{"UncertainOperations", "20m", []string{`ckptsidecar_uncertain_operations=2x30`}, []string{`ckptsidecar_uncertain_operations=0x30`}, "2 operations"},
	{"PromptsWait", "2h", []string{`ckptsidecar_prompts_open=1x200`}, []string{`ckptsidecar_prompts_open=0x200`}, "1 questions"},
	{"CriticalFindings", "10m", []string{`ckptsidecar_findings_open{severity="critical",rule="repeat"}=1x30`},
		[]string{`ckptsidecar_findings_open{severity="warn",rule="repeat"}=1x30`}, "1 critical"},
	{"DamagedCheckpoints", "5m", []string{`ckptsidecar_damaged_checkpoints=1x30`}, []string{`ckptsidecar_damaged_checkpoints=0x30`}, "1 checkpoints"},
	{"DatabaseNearlyFull", "20m", []string{`ckptsidecar_database_max_bytes=100x30`, `ckptsidecar_database_bytes=95x30`, `ckptsidecar_database_free_bytes=1x30`},
		[]string{`ckptsidecar_database_max_bytes=0x30`, `ckptsidecar_database_bytes=95x30`, `ckptsidecar_database_free_bytes=1x30`}, "more than 90 %"},
	{"JournalGrows", "25m", []string{`ckptsidecar_wal_pending_bytes=2000000000x30`}, []string{`ckptsidecar_wal_pending_bytes=1000000x30`}, "has 1.863GiB"},
	{"BackupFailed", "5m", []string{`ckptsidecar_backup_failed=1x30`}, []string{`ckptsidecar_backup_failed=0x30`}, "failed"},
	{"BackupOld", "74h", []string{`ckptsidecar_backup_time_seconds=60x4500`}, []string{`ckptsidecar_backup_time_seconds=0x4500`}, "is 3d 1h 59m 0s old"},
	{"BackupNever", "74h", []string{`ckptsidecar_backup_interval_seconds=86400x4500`, `ckptsidecar_backup_time_seconds=0x4500`},
		[]string{`ckptsidecar_backup_interval_seconds=0x4500`, `ckptsidecar_backup_time_seconds=0x4500`}, "has never made a backup"},
	{"BackupStaysHere", "3h", []string{`ckptsidecar_backup_after_failed=1x200`}, []string{`ckptsidecar_backup_after_failed=0x200`}, "did not take the newest backup"},
	{"DrillFailed", "5m", []string{`ckptsidecar_backup_drill_failed=1x30`}, []string{`ckptsidecar_backup_drill_failed=0x30`}, "could not be restored"},
	{"DrillOld", "7h", []string{`ckptsidecar_backup_drill_interval_seconds=3600x500`, `ckptsidecar_backup_drill_time_seconds=60x500`},
		[]string{`ckptsidecar_backup_drill_interval_seconds=0x500`, `ckptsidecar_backup_drill_time_seconds=60x500`}, "6h 59m 0s ago"},
	{"Restarts", "20m", []string{`ckptsidecar_start_time_seconds=0+60x30`}, []string{`ckptsidecar_start_time_seconds=60x30`}, "started 20 times"},
	{"WritesFail", "20m", []string{`ckptsidecar_write_failures_total=0+1x30`}, []string{`ckptsidecar_write_failures_total=7x30`}, "15 writes"},
	{"WritesRefused", "20m", []string{`ckptsidecar_requests_total{route="save",code="quota"}=0+2x30`},
		[]string{`ckptsidecar_requests_total{route="save",code="ok"}=0+9x30`}, "30 requests"},
	{"InternalErrors", "20m", []string{`ckptsidecar_requests_total{route="save",code="internal"}=0+1x30`},
		[]string{`ckptsidecar_requests_total{route="save",code="not_found"}=0+1x30`}, "15 requests"},
	{"DiskLow", "10m", []string{`ckptsidecar_disk_free_bytes=1500000000x30`, `ckptsidecar_disk_floor_bytes=1000000000x30`},
		[]string{`ckptsidecar_disk_free_bytes=-1x30`, `ckptsidecar_disk_floor_bytes=0x30`}, "has 1.397GiB left"},
	{"QuotaNearlyFull", "20m", []string{`ckptsidecar_owner_fullest_ratio=0.95x30`}, []string{`ckptsidecar_owner_fullest_ratio=0.5x30`}, "has used 95%"},
	{"FleetLags", "10m", []string{`ckptsidecar_fleet_lag_seconds=90x30`}, []string{`ckptsidecar_fleet_lag_seconds=1x30`}, "the last 1m 30s"},
	{"FleetFails", "20m", []string{`ckptsidecar_fleet_failing=1x30`}, []string{`ckptsidecar_fleet_failing=0x30`}, "ships nothing"},
	{"FleetWentBack", "20m", []string{`ckptsidecar_fleet_went_back_total=0+1x30`}, []string{`ckptsidecar_fleet_went_back_total=1x30`}, "shipped it again"},
	{"FleetErasureWaits", "26h", []string{`ckptsidecar_fleet_erasures_waiting=1x1600`}, []string{`ckptsidecar_fleet_erasures_waiting=0x1600`}, "has not confirmed"},
	{"FleetLeaseOver", "10m", []string{`ckptsidecar_fleet_lease_left_seconds=0x30`}, []string{`ckptsidecar_fleet_lease_left_seconds=5x30`}, "has lost its lease"},
	{"FleetStrand", "20m", []string{`ckptsidecar_fleet_strands=1x30`}, []string{`ckptsidecar_fleet_strands=0x30`}, "1 runs"},
	{"SavesAreSlow", "20m", []string{`ckptsidecar_commit_p99_seconds=2x30`}, []string{`ckptsidecar_commit_p99_seconds=0.1x30`}, "takes 2s"},
}

// TestAlertRules lets promtool play each alert: it fires with its summary, and stays quiet. Every alert has a case.
func TestAlertRules(t *testing.T) {
	rules, err := filepath.Abs("prometheus/ckptsidecar.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`alert: Ckptsidecar(\w+)`).FindAllStringSubmatch(string(text), -1) {
		if !slices.ContainsFunc(alertCases, func(c alertCase) bool { return c.alert == m[1] }) {
			t.Errorf("the alert %s has no case", m[1])
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	if out, err := exec.Command(promtool, "check", "rules", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range alertCases {
		t.Run(c.alert, func(t *testing.T) {
			t.Parallel()
			if out := play(t, promtool, rules, &c, c.quiet); out != "" {
				t.Errorf("it does not stay quiet: %s", out)
			}
			// Without the labels of the alert promtool says what it got.
			if out := play(t, promtool, rules, &c, c.fires); !strings.Contains(out, c.summary) {
				t.Errorf("it does not say %q: %s", c.summary, out)
			}
		})
	}
}

// play runs one alert over series, expecting none, and returns what promtool says against that.
func play(t *testing.T, promtool, rules string, c *alertCase, series []string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", rules)
	for _, s := range series {
		last := strings.LastIndexByte(s, '=')
		name, values := s[:last], s[last+1:]
		if labels, rest, is := strings.Cut(name, "{"); is {
			name = labels + `{instance="h",` + rest
		} else {
			name += `{instance="h"}`
		}
		fmt.Fprintf(&b, "  - {series: %q, values: %q}\n", name, values)
	}
	fmt.Fprintf(&b, "  alert_rule_test:\n  - {eval_time: %s, alertname: Ckptsidecar%s, exp_alerts: []}\n", c.after, c.alert)
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput()
	if err == nil {
		return ""
	}
	return string(out)
}
