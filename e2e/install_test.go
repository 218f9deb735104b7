//go:build e2e && linux

package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestServiceCommand installs the program without a package, for the system and
// for one user, removes it and installs it again.
func TestServiceCommand(t *testing.T) {
	need(t, "systemd-nspawn", "mmdebstrap", "unshare", "nsenter")
	m := boot(t, bootable(t), program(t))
	m.sh("useradd -m ann; mkdir -p /opt/here; cp /mnt/ckptsidecar /opt/here/")
	t.Run("system", func(t *testing.T) { here := *m; here.t = t; here.serviceOfTheSystem(t) })
	t.Run("user", func(t *testing.T) { here := *m; here.t = t; here.serviceOfAUser(t) })
}

const traces = `find /etc /usr /run /root /home -xdev \( -name '*ckptsidecar*' -o -name '10-program.conf' \) -not -path '/home/ann/bin/*' 2>/dev/null | sort`

func (m *machine) serviceOfTheSystem(t *testing.T) {
	before := m.sh(traces)
	out, err := m.as("ann", "/opt/here/ckptsidecar service install")
	t.Log("ann: ", out)
	if exitCode(err) != 1 || strings.Count(out, "\n") != 0 || !strings.Contains(out, "sudo") {
		t.Errorf("without rights: %v: %s", err, out)
	}
	t.Log(m.run("/opt/here/ckptsidecar", "service", "install", "--dry-run"))
	if after := m.sh(traces); after != before {
		t.Errorf("a dry run left:\n%s", after)
	}
	// An installation was interrupted: the file with the accounts is written, and there are no accounts.
	m.sh("mkdir -p /etc/sysusers.d; /opt/here/ckptsidecar service install; systemctl stop ckptsidecar.socket ckptsidecar.service; " +
		"userdel ckptsidecar; groupdel ckptsidecar-audit; rm -r /var/lib/ckptsidecar")
	t.Log(m.run("/opt/here/ckptsidecar", "service", "install"))
	m.until(10*time.Second, "the daemon", m.answers)
	// Another one was interrupted after it had replaced the program.
	old := m.run("systemctl", "show", "--property=MainPID", "ckptsidecar.service")
	m.sh("cp /opt/here/ckptsidecar /usr/local/bin/new && mv /usr/local/bin/new /usr/local/bin/ckptsidecar")
	t.Log(m.run("/opt/here/ckptsidecar", "service", "install"))
	m.until(10*time.Second, "the daemon", m.answers)
	if now := m.run("systemctl", "show", "--property=MainPID", "ckptsidecar.service"); now == old {
		t.Error("the replaced program still runs")
	}
	m.run("/opt/here/ckptsidecar", "service", "uninstall")
	for round := range 2 {
		t.Log(m.run("/opt/here/ckptsidecar", "service", "install"))
		m.until(10*time.Second, "the daemon", m.answers)
		if out := m.run("/opt/here/ckptsidecar", "service", "install"); out != "installed and running already" {
			t.Errorf("installed twice: %s", out)
		}
		if out := m.run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/ckptsidecar.service", "/etc/systemd/system/ckptsidecar.socket"); out != "" {
			t.Errorf("systemd-analyze verify says: %s", out)
		}
		if status := m.run("ckptsidecar", "service", "status"); round == 0 {
			t.Log(status)
		} else if !strings.Contains(status, "as shipped, in /etc/systemd/system") {
			t.Errorf("status: %s", status)
		}
		m.sh("echo '{}' | ckptsidecar save coder")
		t.Log(m.run("/opt/here/ckptsidecar", "service", "uninstall"))
		if out := m.run("/opt/here/ckptsidecar", "service", "uninstall"); out != "not installed" {
			t.Errorf("uninstalled twice: %s", out)
		}
		if after := m.sh(traces); after != before {
			t.Errorf("left over, before:\n%s\nafter:\n%s", before, after)
		}
		if failed := m.run("systemctl", "--failed", "--plain", "--no-legend"); failed != "" {
			t.Errorf("failed units: %s", failed)
		}
	}
	if n := m.run("sqlite3", "-readonly", "/var/lib/ckptsidecar/ckpt.db", "SELECT count(*) FROM audit_checkpoints"); n != "2" {
		t.Errorf("%s checkpoints are left", n)
	}
	status, err := m.try("/opt/here/ckptsidecar", "service", "status")
	if exitCode(err) != 3 || !strings.Contains(status, "not installed") {
		t.Errorf("status where nothing is installed: %v: %s", err, status)
	}
	// A drop-in of the administrator is left alone.
	m.run("/opt/here/ckptsidecar", "service", "install")
	m.sh("printf '[Service]\nNice=1\n' > /etc/systemd/system/ckptsidecar.service.d/override.conf")
	m.run("/opt/here/ckptsidecar", "service", "uninstall")
	m.run("rm", "-r", "/etc/systemd/system/ckptsidecar.service.d")
}

func (m *machine) serviceOfAUser(t *testing.T) {
	uid := m.run("id", "-u", "ann")
	m.run("systemctl", "start", "user@"+uid+".service")
	m.sh("mkdir -p /home/ann/bin; cp /mnt/ckptsidecar /home/ann/bin/; chown -R ann: /home/ann/bin")
	ann := func(line string) (string, error) {
		return m.as("ann", "export XDG_RUNTIME_DIR=/run/user/"+uid+"; export PATH=$HOME/bin:$PATH; "+line)
	}
	for range 2 {
		out, err := ann("ckptsidecar service install --user")
		t.Log(out)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if out, err := ann("ckptsidecar service install --user"); err != nil || out != "installed and running already" {
			t.Errorf("installed twice: %v: %s", err, out)
		}
		if out, err := ann(`echo '{"of":"ann"}' | ckptsidecar save coder && ckptsidecar restore coder && ckptsidecar service status --user`); err != nil || !strings.Contains(out, `{"of":"ann"}`) || !strings.Contains(out, "as shipped, in /home/ann/.config/systemd/user") {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := ann("systemctl --user show ckptsidecar.service --value --property=MainPID,Result,ActiveState; systemctl --user kill -s KILL ckptsidecar.service; sleep 2; ckptsidecar restore coder"); err != nil {
			t.Errorf("after a kill: %v: %s", err, out)
		}
		if out, err := ann("ckptsidecar service uninstall --user"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if left := m.sh(traces + " | grep -v /home/ann/.local/state || true"); left != "" {
			t.Errorf("left over:\n%s", left)
		}
	}
}
