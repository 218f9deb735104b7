package systems

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"syscall"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
)

// etcd is a cluster of one node, with its defaults and enough space for the saved states.
type etcd struct {
	w    *Workshop
	path string
}

func (s *etcd) Name() string  { return "etcd" }
func (s *etcd) Title() string { return "etcd, one node, put" }

func (s *etcd) Prepare(ctx context.Context, w *Workshop) (err error) {
	s.w = w
	s.path, err = w.program(ctx, "etcd", "etcd-server")
	return err
}

func (s *etcd) Start(ctx context.Context, dir string) (*Instance, error) {
	url, peer, err := freeURLs()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	p, err := host.Start(host.Spec{Name: "etcd", Path: s.path, Env: append(s.w.env, "ETCD_UNSUPPORTED_ARCH=arm64"), Dir: dir, Args: []string{
		"--data-dir", data, "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		"--quota-backend-bytes", fmt.Sprint(8 << 30),
	}})
	if err != nil {
		return nil, err
	}
	return s.w.attach(ctx, &server{p, syscall.SIGTERM}, s.Name(), url, data)
}

// freeURLs returns two addresses at which no process listens at the moment.
func freeURLs() (a, b string, err error) {
	one, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer one.Close()
	two, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer two.Close()
	return "http://" + one.Addr().String(), "http://" + two.Addr().String(), nil
}
