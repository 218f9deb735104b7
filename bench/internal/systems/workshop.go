package systems

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

// Workshop is the place where systems are prepared.
type Workshop struct {
	Self    string // this program, which is also its driver
	Server  string // the product's program
	Corpus  string // the file with the text of the states
	Scratch string // removed when the run ends
	Cache   string // kept: downloads and builds
	Offline bool   // install nothing
	Say     func(format string, args ...any)

	updated  bool     // the package lists are fresh
	packages string   // where packages are unpacked, once there are some
	env      []string // the environment that programs from packages need
}

// program finds a program on this machine, or takes it from a package of the distribution. It
// installs nothing into the system: it unpacks the package into the scratch folder, so no service
// starts and root is not needed. patterns name other places than PATH where the program can be.
func (w *Workshop) program(ctx context.Context, name, pkg string, patterns ...string) (string, error) {
	if path := w.find("", name, patterns); path != "" {
		return path, nil
	}
	if w.Offline {
		return "", fmt.Errorf("%s is not installed", name)
	}
	w.Say("getting the package %s", pkg)
	if err := w.unpack(ctx, pkg); err != nil {
		return "", fmt.Errorf("%s is not installed, and the package %s cannot be had: %w", name, pkg, err)
	}
	if path := w.find(w.packages, name, append(patterns, "/usr/bin/"+name, "/usr/sbin/"+name)); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("the package %s has no %s", pkg, name)
}

// find looks in PATH, unless there is a root folder to search below.
func (w *Workshop) find(root, name string, patterns []string) string {
	if root == "" {
		if path, err := exec.LookPath(name); err == nil {
			// PostgreSQL looks for its files beside its program. Redis chooses its function by the
			// name that it is started with, and the file behind the link has another name.
			if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Base(real) == name {
				return real
			}
			return path
		}
	}
	for _, pattern := range patterns {
		if paths, _ := filepath.Glob(root + pattern); len(paths) > 0 {
			slices.Sort(paths)
			return paths[len(paths)-1] // the newest version
		}
	}
	return ""
}

func (w *Workshop) unpack(ctx context.Context, pkg string) error {
	debs := filepath.Join(w.Cache, "debs", pkg)
	if err := w.download(ctx, pkg, debs); err != nil {
		return err
	}
	w.packages = filepath.Join(w.Scratch, "packages")
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("nothing was downloaded into %s", debs))
	}
	for _, file := range files {
		if err := host.Run(ctx, host.Spec{Name: "dpkg-deb", Path: "dpkg-deb", Args: []string{"-x", file, w.packages}}); err != nil {
			return err
		}
	}
	libraries, _ := filepath.Glob(filepath.Join(w.packages, "usr/lib/*-linux-gnu*"))
	more, _ := filepath.Glob(filepath.Join(w.packages, "lib/*-linux-gnu*"))
	w.env = []string{"LD_LIBRARY_PATH=" + strings.Join(append(libraries, more...), ":")}
	return nil
}

// download gets a package and the packages that it needs and that are not installed. It does not
// download them again.
func (w *Workshop) download(ctx context.Context, pkg, dir string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("there is no apt-get")
	}
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "partial"), 0o755); err != nil {
		return err
	}
	get := host.Spec{Name: "apt-get", Path: "apt-get", Env: []string{"DEBIAN_FRONTEND=noninteractive"}, Args: []string{
		"--download-only", "--no-install-recommends", "-y", "-qq", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=",
		"-o", "Dir::Cache::archives=" + dir, "install", pkg,
	}}
	err := host.Run(ctx, get)
	if err != nil && os.Geteuid() == 0 && !w.updated { // the package lists are old or missing
		w.updated = true
		if err = host.Run(ctx, host.Spec{Name: "apt-get update", Path: "apt-get", Args: []string{"update", "-qq"}}); err == nil {
			err = host.Run(ctx, get)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(done, nil, 0o644)
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)+`)

// version returns the version number that a program prints.
func (w *Workshop) version(ctx context.Context, path string, args ...string) string {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), w.env...)
	out, _ := cmd.Output()
	return number.FindString(string(out))
}
