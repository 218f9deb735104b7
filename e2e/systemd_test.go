//go:build e2e && linux

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const oldVersion, newVersion = "1.0.0", "1.1.0"

// packages builds a package of an older and of a newer version.
func packages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{oldVersion, newVersion} {
		cmd := exec.Command("../packaging/dist.sh", "deb")
		cmd.Env = append(os.Environ(), "VERSION="+version, "OUT="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

// program builds only the program.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "ckptsidecar"), "../cmd/ckptsidecar")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// usualSuite is the Debian on which the packages are tested. CKPTSIDECAR_E2E_SUITE names another one.
const usualSuite = "bookworm"

func suite() string { return cmp.Or(os.Getenv("CKPTSIDECAR_E2E_SUITE"), usualSuite) }

func bootable(t *testing.T) string {
	return debian(t, suite(), suite(), "--variant=minbase", "--include=systemd,systemd-sysv,libpam-systemd,dbus,dbus-user-session,sqlite3,strace")
}

// TestPackage tests the whole life of the package on one machine.
func TestPackage(t *testing.T) {
	need(t, "systemd-nspawn", "mmdebstrap", "unshare", "nsenter")
	m := boot(t, bootable(t), packages(t))
	defer func() {
		t.Logf("%s: part, acknowledged, lost, refused, longest\n%s", suite(), strings.Join(m.trial.rows, "\n"))
	}()
	for _, part := range []struct {
		name string
		does func(*machine, *testing.T)
	}{
		{"install", (*machine).install},
		{"hardening", (*machine).hardening},
		{"two users", (*machine).twoUsers},
		{"auditors", (*machine).auditors},
		{"crashes", (*machine).crashes},
		{"restarts", (*machine).restarts},
		{"reload", (*machine).reload},
		{"wrong reload", (*machine).wrongReload},
		{"wrong settings", (*machine).wrongSettings},
		{"full disk", (*machine).fullDisk},
		{"stop under load", (*machine).stopUnderLoad},
		{"backups", (*machine).backups},
		{"watchdog", (*machine).watchdog},
		{"upgrade", (*machine).upgrade},
		{"service command", (*machine).serviceOfAPackage},
		{"remove and purge", (*machine).removeAndPurge},
	} {
		began := time.Now()
		ok := t.Run(part.name, func(t *testing.T) {
			here := *m
			here.t = t
			part.does(&here, t)
		})
		t.Logf("%s: %v", part.name, time.Since(began).Round(100*time.Millisecond))
		if !ok {
			journal, _ := m.try("journalctl", "-u", "ckptsidecar.service", "-u", "ckptsidecar.socket", "-n", "60", "--no-pager")
			t.Fatalf("the journal:\n%s", journal)
		}
	}
}

// TestPackageReboots: a machine with the package is powered off after a load, and booted again. The daemon serves without a hand, and
// has every save that was acknowledged.
func TestPackageReboots(t *testing.T) {
	need(t, "systemd-nspawn", "mmdebstrap", "unshare", "nsenter")
	root := filepath.Join(t.TempDir(), "root")
	if out, err := exec.Command("cp", "-a", bootable(t), root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shared := packages(t)
	m, off := bootAs(t, root, shared, "no")
	m.run("dpkg", "-i", m.deb(oldVersion))
	m.until(20*time.Second, "the daemon", m.answers)
	l := m.load("reboot", 8)
	time.Sleep(time.Second)
	l.end()
	l.done.Wait()
	off()
	l.m, _ = bootAs(t, root, shared, "no")
	took := l.m.until(60*time.Second, "the daemon after the boot", l.m.answers)
	t.Logf("the daemon answers %v after the machine is up", took)
	l.finish(t)
}

func (m *machine) deb(version string) string {
	return "/mnt/ckptsidecar_" + version + "_" + strings.TrimSpace(m.run("dpkg", "--print-architecture")) + ".deb"
}

// install: dpkg alone installs a daemon that serves.
func (m *machine) install(t *testing.T) {
	t.Log(m.run("dpkg", "-i", m.deb(oldVersion)))
	for _, unit := range []string{"ckptsidecar.socket", "ckptsidecar.service"} {
		if state := m.run("systemctl", "is-active", unit); state != "active" {
			t.Errorf("%s is %s", unit, state)
		}
		if state := m.run("systemctl", "is-enabled", unit); state != "enabled" {
			t.Errorf("%s is %s", unit, state)
		}
	}
	// An older systemd does not know every directive.
	if out, _ := m.try("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/ckptsidecar.service", "/usr/lib/systemd/system/ckptsidecar.socket"); out != "" && suite() == usualSuite {
		t.Errorf("systemd-analyze verify says: %s", out)
	}
	if failed := m.run("systemctl", "--failed", "--plain", "--no-legend"); failed != "" {
		t.Errorf("failed units: %s", failed)
	}
	t.Log(m.run("systemctl", "status", "--no-pager", "-n", "5", "ckptsidecar.service"))
	t.Log(m.run("ckptsidecar", "service", "status"))
	if got := m.run("stat", "-c", "%U:%G %a", "/var/lib/ckptsidecar", "/var/lib/ckptsidecar/ckpt.db", "/run/ckptsidecar", "/run/ckptsidecar/ckptsidecar.sock"); got !=
		"ckptsidecar:ckptsidecar-audit 750\nckptsidecar:ckptsidecar-audit 640\nroot:root 755\nckptsidecar:ckptsidecar 660" {
		t.Errorf("owners and modes:\n%s", got)
	}
	if fields := m.run("journalctl", "-u", "ckptsidecar.service", "-o", "json", "CKPT_VERSION="+oldVersion, "--no-pager"); !strings.Contains(fields, `"CKPT_ENDPOINT":"/run/ckptsidecar/ckptsidecar.sock"`) {
		t.Errorf("the journal has no fields: %s", fields)
	}
}

// hardening is checked with what the kernel reports.
func (m *machine) hardening(t *testing.T) {
	status := m.sh(fmt.Sprintf("grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/%d/status; readlink /proc/%d/ns/net /proc/self/ns/net; cat /proc/%d/uid_map", m.pid(), m.pid(), m.pid()))
	t.Log(status)
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "4294967295"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q", want)
		}
	}
	t.Log(m.sh("systemd-analyze security ckptsidecar.service | tail -1"))
}

func (m *machine) twoUsers(t *testing.T) {
	m.sh("useradd -m -G ckptsidecar ann; useradd -m -G ckptsidecar bob; useradd -m eve; useradd -m -G ckptsidecar-audit vera")
	for _, user := range []string{"ann", "bob"} {
		if out, err := m.as(user, `echo '{"of":"`+user+`"}' | ckptsidecar save coder`); err != nil {
			t.Fatalf("%s: %v: %s", user, err, out)
		}
		if out, err := m.as(user, "ckptsidecar restore coder"); err != nil || out != `{"of":"`+user+`"}` {
			t.Errorf("%s restored %q, %v", user, out, err)
		}
	}
	out, err := m.as("eve", "ckptsidecar list coder")
	t.Log("eve: ", out)
	if exitCode(err) != 75 || !strings.Contains(out, "join the group") {
		t.Errorf("eve, who is in no group: %v: %s", err, out)
	}
}

// auditors can read the database of the running daemon, and cannot write it.
func (m *machine) auditors(t *testing.T) {
	const db = "/var/lib/ckptsidecar/ckpt.db"
	sqlite := m.sqlite(t)
	if out, err := m.as("vera", sqlite+` -readonly `+db+` "SELECT count(DISTINCT owner) FROM audit_checkpoints"`); err != nil || out != "2" {
		t.Errorf("the auditor reads %s, %v", out, err)
	}
	if out, err := m.as("vera", sqlite+` `+db+` "DELETE FROM checkpoints"`); err == nil || !strings.Contains(out, "readonly") {
		t.Errorf("the auditor may write: %s, %v", out, err)
	}
	if out, err := m.as("ann", sqlite+` -readonly `+db+` "SELECT 1 FROM agents"`); err == nil {
		t.Errorf("a caller reads everybody's: %s", out)
	}
}

// crashes: systemd starts the daemon again after a kill and after an abort.
func (m *machine) crashes(t *testing.T) {
	for _, signal := range []string{"KILL", "ABRT", "SEGV"} {
		before := m.pid()
		l := m.load("crash-"+strings.ToLower(signal), 4)
		time.Sleep(300 * time.Millisecond)
		m.kill(signal, before)
		took := m.until(30*time.Second, "a new daemon", func() bool { now := m.pid(); return now != 0 && now != before && m.answers() })
		t.Logf("SIG%s: a new daemon answers after %v", signal, took)
		time.Sleep(300 * time.Millisecond)
		l.finish(t)
	}
}

// restarts: clients on the socket lose nothing, and wait.
func (m *machine) restarts(t *testing.T) {
	l := m.load("restart", 4)
	const rounds = 50
	for n := range rounds {
		if n%10 == 9 {
			m.kill("KILL", m.pid())
			continue
		}
		m.run("systemctl", "restart", "ckptsidecar.service")
		time.Sleep(50 * time.Millisecond) // the clients save meanwhile
	}
	m.until(30*time.Second, "the daemon", m.answers)
	l.finish(t)
	// A client that connects while no daemon runs starts it.
	m.run("systemctl", "stop", "ckptsidecar.service")
	if out, err := m.as("ann", "ckptsidecar list coder --json | head -c 20"); err != nil || !strings.HasPrefix(out, "{") {
		t.Errorf("with the service stopped and the socket there: %v: %s", err, out)
	}
}

func (m *machine) reload(t *testing.T) {
	l := m.load("reload", 4)
	before := m.pid()
	m.sh(`printf '[log]\nlevel = "debug"\n[limits]\nconnections = 77\n' > /etc/ckptsidecar/config.toml`)
	m.run("systemctl", "reload", "ckptsidecar.service")
	m.until(10*time.Second, "the reload", func() bool {
		out, _ := m.try("journalctl", "-u", "ckptsidecar.service", "--no-pager", "-o", "cat", "CKPT_SETTINGS=[limits.connections]")
		return strings.Contains(out, "effect after a restart")
	})
	if m.pid() != before || m.show("ActiveState") != "active" {
		t.Errorf("after the reload the service is %s with another process", m.show("ActiveState"))
	}
	if out := m.run("journalctl", "-u", "ckptsidecar.service", "--no-pager", "-o", "cat", "CKPT_CHANGED=[log.level]"); !strings.Contains(out, "were reloaded") {
		t.Errorf("the journal: %s", out)
	}
	l.finish(t)
}

// wrongReload: a reload of wrong settings fails. The daemon goes on with the settings that it has, and status and doctor name the mistake.
func (m *machine) wrongReload(t *testing.T) {
	l := m.load("wrong-reload", 4)
	before := m.pid()
	m.sh(`printf '[limits]\nconnections = 0\n' > /etc/ckptsidecar/config.toml`)
	out, err := m.try("systemctl", "reload", "ckptsidecar.service")
	t.Log(out)
	if err == nil {
		t.Errorf("a reload of wrong settings succeeded: %s", out)
	}
	for _, command := range []string{"ckptsidecar status", "ckptsidecar doctor"} {
		out, err := m.try("sh", "-c", command)
		t.Logf("%s: %v\n%s", command, err, out)
		if !strings.Contains(out, "config.toml:2: the setting limits.connections must be at least 1") {
			t.Errorf("%s does not name the mistake: %s", command, out)
		}
	}
	if m.pid() != before || m.show("ActiveState") != "active" {
		t.Errorf("after the reload the service is %s with another process", m.show("ActiveState"))
	}
	l.finish(t)
}

// wrongSettings: there is no restart loop, one clear line, and an answer for
// waiting clients.
func (m *machine) wrongSettings(t *testing.T) {
	m.sh(`printf '[limits]\nconnections = 0\n' > /etc/ckptsidecar/config.toml`)
	if out, err := m.try("systemctl", "restart", "ckptsidecar.service"); err == nil {
		t.Errorf("a start with wrong settings succeeded: %s", out)
	}
	restarts := m.show("NRestarts")
	out, err := m.as("ann", "ckptsidecar list coder")
	t.Log("ann: ", out)
	if exitCode(err) != 75 || !strings.Contains(out, "cannot start") {
		t.Errorf("who calls is told: %v: %s", err, out)
	}
	time.Sleep(5 * time.Second)
	if m.show("ActiveState") != "failed" || m.show("ExecMainStatus") != "78" || m.show("NRestarts") != restarts {
		t.Errorf("the service is %s with %s, restarts %s and then %s", m.show("ActiveState"), m.show("ExecMainStatus"), restarts, m.show("NRestarts"))
	}
	if out := m.run("journalctl", "-u", "ckptsidecar.service", "--no-pager", "-n", "20"); !strings.Contains(out, "config.toml:2: the setting limits.connections must be at least 1") {
		t.Errorf("the journal does not say what is wrong:\n%s", out)
	}
	status, err := m.try("ckptsidecar", "service", "status")
	t.Log(status)
	if exitCode(err) != 1 {
		t.Errorf("service status of a failed service: %v", err)
	}
	m.sh(`: > /etc/ckptsidecar/config.toml`)
	m.run("systemctl", "restart", "ckptsidecar.service")
	m.until(10*time.Second, "the daemon", m.answers)
}

// fullDisk: one user fills a small disk. The other one can still save, and status says what is wrong. What the first one erases can
// be used again.
func (m *machine) fullDisk(t *testing.T) {
	m.run("systemctl", "stop", "ckptsidecar.service", "ckptsidecar.socket")
	m.sh("mount -t tmpfs -o size=64m,mode=0750,uid=$(id -u ckptsidecar),gid=$(id -g ckptsidecar) tmpfs /var/lib/ckptsidecar")
	m.run("systemctl", "start", "ckptsidecar.socket", "ckptsidecar.service")
	m.until(20*time.Second, "the daemon", m.answers)
	defer func() {
		m.run("systemctl", "stop", "ckptsidecar.service", "ckptsidecar.socket")
		m.run("umount", "/var/lib/ckptsidecar")
		m.run("systemctl", "start", "ckptsidecar.socket", "ckptsidecar.service")
		m.until(20*time.Second, "the daemon", m.answers)
	}()
	// The daemon has copied its log between two refusals, so the last one stands.
	out, err := m.as("ann", `refused=0; while [ $refused -lt 3 ]
		do if head -c 400000 /dev/urandom | ckptsidecar save filler --kind recovery --content-type application/octet-stream -q >>acknowledged
			then refused=0; else refused=$((refused+1)); sleep 2; fi
			[ $(wc -l <acknowledged) -lt 400 ] || exit 9
		done; exit 1`)
	t.Log("ann: ", out)
	refused := map[string]int{"ann": strings.Count(out, "are kept for users")}
	if exitCode(err) != 1 || !strings.Contains(out, "are kept for users who store less than") {
		t.Errorf("ann fills the disk: %v: %s", err, out)
	}
	for n := range 20 {
		if out, err := m.as("bob", fmt.Sprintf(`echo '{"n":%d}' | ckptsidecar save small --kind recovery -q >>acknowledged`, n)); err != nil {
			t.Fatalf("bob, who has stored nothing, is refused: %v: %s", err, out)
		}
	}
	for user, agent := range map[string]string{"ann": "filler", "bob": "small"} {
		var acknowledged, stored int
		out, err := m.as(user, "wc -l <acknowledged; ckptsidecar list "+agent+" --all -q | sort >stored; sort acknowledged | comm -12 - stored | wc -l")
		if _, wrong := fmt.Sscan(out, &acknowledged, &stored); wrong != nil || acknowledged == 0 || stored != acknowledged {
			t.Errorf("%s has %q: %v, %v", user, out, err, wrong)
		}
		m.trial.add("full-disk "+user, acknowledged, acknowledged-stored, refused[user], 0)
		out, err = m.as(user, "ckptsidecar status")
		t.Logf("%s: %s", user, out)
		if !strings.Contains(out, "degraded") {
			t.Errorf("%s is not told that the daemon is degraded: %v: %s", user, err, out)
		}
	}
	t.Log(m.run("ckptsidecar", "verify", "--db", "/var/lib/ckptsidecar/ckpt.db"))
	if out, err := m.as("ann", "ckptsidecar erase filler --yes"); err != nil {
		t.Errorf("ann makes room: %v: %s", err, out)
	}
	took := m.until(2*time.Minute, "room after an erasure", func() bool {
		out, err = m.as("ann", "echo '{}' | ckptsidecar save filler")
		return err == nil
	})
	t.Logf("ann saves again %v after she erased", took)
	t.Log(m.run("ckptsidecar", "verify", "--db", "/var/lib/ckptsidecar/ckpt.db"))
}

// stopUnderLoad: the daemon stops within 5 s, and every client gets an answer.
func (m *machine) stopUnderLoad(t *testing.T) {
	l := m.load("stop", 16)
	time.Sleep(700 * time.Millisecond)
	began := time.Now()
	m.run("systemctl", "stop", "ckptsidecar.service", "ckptsidecar.socket")
	took := time.Since(began)
	t.Logf("stopped in %v, result %s", took.Round(time.Millisecond), m.show("Result"))
	if took > 5*time.Second || m.show("Result") != "success" {
		t.Errorf("the stop took %v with the result %s", took, m.show("Result"))
	}
	m.run("systemctl", "start", "ckptsidecar.socket", "ckptsidecar.service")
	time.Sleep(300 * time.Millisecond)
	l.finish(t)
}

// backups are made with all the hardening in force, and one is restored as the
// operator's guide says.
func (m *machine) backups(t *testing.T) {
	m.sh(`printf '[backup]\ninterval = "1m"\n' > /etc/ckptsidecar/config.toml`)
	m.run("systemctl", "reload", "ckptsidecar.service")
	const newest = `ls /var/lib/ckptsidecar/backups/*.db | tail -1`
	took := m.until(60*time.Second, "a backup", func() bool { _, err := m.try("sh", "-c", newest+" | grep ."); return err == nil })
	backup := m.sh(newest)
	t.Logf("%s after %v: %s", backup, took, m.run("ckptsidecar", "verify", "--db", backup))
	m.sh("echo '{\"after\":true}' | ckptsidecar save drill")
	if out, err := m.try("ckptsidecar", "restore-backup", "--system", backup); exitCode(err) != 4 {
		t.Errorf("under the daemon: %v: %s", err, out)
	}
	m.run("ckptsidecar", "service", "stop")
	t.Log(m.run("ckptsidecar", "restore-backup", "--system", backup))
	m.run("ckptsidecar", "service", "start")
	m.until(10*time.Second, "the daemon", m.answers)
	if out, err := m.try("ckptsidecar", "restore", "drill"); exitCode(err) != 3 {
		t.Errorf("what was saved after the backup is there: %v: %s", err, out)
	}
	if out, err := m.as("bob", "ckptsidecar restore coder"); err != nil || out != `{"of":"bob"}` {
		t.Errorf("from the backup bob restores %q, %v", out, err)
	}
	m.run("ckptsidecar", "verify")
	m.sh(`: > /etc/ckptsidecar/config.toml; rm /var/lib/ckptsidecar/ckpt.db.before-*`)
	t.Log(m.run("ckptsidecar", "doctor"))
}

func (m *machine) upgrade(t *testing.T) {
	l := m.load("upgrade", 4)
	time.Sleep(300 * time.Millisecond)
	m.run("dpkg", "-i", "--force-confold", m.deb(newVersion))
	m.until(20*time.Second, "the daemon", m.answers)
	time.Sleep(300 * time.Millisecond)
	l.finish(t)
	status, err := m.client().Status(t.Context())
	if err != nil || status.Version != newVersion {
		t.Errorf("after the upgrade: %+v, %v", status, err)
	}
	if out, err := m.as("bob", "ckptsidecar restore coder"); err != nil || out != `{"of":"bob"}` {
		t.Errorf("after the upgrade bob restores %q, %v", out, err)
	}
}

// serviceOfAPackage: the service command leaves the files of a package alone.
func (m *machine) serviceOfAPackage(t *testing.T) {
	if out := m.run("ckptsidecar", "service", "install"); out != "installed and running already" {
		t.Errorf("install: %s", out)
	}
	out, err := m.as("ann", "ckptsidecar service stop")
	t.Log("ann: ", out)
	if err == nil || strings.Count(out, "\n") != 0 || !strings.Contains(out, "sudo") {
		t.Errorf("without rights: %v: %s", err, out)
	}
	m.run("ckptsidecar", "service", "stop")
	if m.answers() {
		t.Error("a stopped service answers")
	}
	m.run("ckptsidecar", "service", "start")
	m.until(10*time.Second, "the daemon", m.answers)
	t.Log(m.run("ckptsidecar", "service", "uninstall"))
	if out, err := m.try("systemctl", "is-enabled", "ckptsidecar.socket"); err == nil {
		t.Errorf("after uninstall the socket is %s", out)
	}
	t.Log(m.run("ckptsidecar", "service", "install"))
	m.until(10*time.Second, "the daemon", m.answers)
}

func (m *machine) removeAndPurge(t *testing.T) {
	l := m.load("purge", 4)
	time.Sleep(300 * time.Millisecond)
	l.end()
	l.done.Wait()
	m.run("dpkg", "-r", "ckptsidecar")
	const db = "/var/lib/ckptsidecar/ckpt.db"
	if n := m.sh(m.sqlite(t) + ` -readonly ` + db + ` "SELECT count(*) FROM audit_checkpoints WHERE agent = 'coder'"`); n != "2" {
		t.Errorf("after the removal %s checkpoints are left", n)
	}
	if out, err := m.try("systemctl", "cat", "ckptsidecar.service"); err == nil && !strings.Contains(out, "masked") && strings.Contains(out, "ExecStart") {
		t.Errorf("the unit is left: %s", out)
	}
	m.run("dpkg", "-i", m.deb(newVersion))
	m.until(10*time.Second, "the daemon", m.answers)
	if out, err := m.as("ann", "ckptsidecar restore coder"); err != nil || out != `{"of":"ann"}` {
		t.Errorf("installed again, ann restores %q, %v", out, err)
	}
	if out := m.sh("dpkg -P ckptsidecar 2>&1"); !strings.Contains(out, "/var/lib/ckptsidecar stays, with all checkpoints") {
		t.Errorf("a purge without a terminal says %q", out)
	}
	m.run("test", "-e", db)
	m.run("dpkg", "-i", m.deb(newVersion))
	m.until(10*time.Second, "the daemon", m.answers)
	l.finish(t)
	t.Log(m.sh("echo ckptsidecar ckptsidecar/purge-data boolean true | debconf-set-selections; dpkg -P ckptsidecar"))
	leftovers := m.sh("ls -d /var/lib/ckptsidecar /etc/ckptsidecar /usr/bin/ckptsidecar /run/ckptsidecar/* 2>/dev/null; find / -xdev -name '*ckptsidecar*' -not -path '/proc/*' -not -path '/mnt/*' -not -path '/home/*' -not -path '/var/cache/debconf/*' -not -path '/var/log/*' 2>/dev/null; true")
	if leftovers != "" {
		t.Errorf("after the purge this is left:\n%s", leftovers)
	}
}
