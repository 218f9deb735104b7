package drivers

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// inEtcd puts the newest state of each agent under its name. Each client has its own connection, as
// agents in separate processes would.
type inEtcd struct {
	config  clientv3.Config
	version string
}

func openEtcd(ctx context.Context, url string) (load.Store, error) {
	s := &inEtcd{config: clientv3.Config{Endpoints: []string{url}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), Context: ctx}}
	c, err := clientv3.New(s.config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	status, err := c.Status(ctx, url)
	if err != nil {
		return nil, err
	}
	s.version = status.Version
	return s, nil
}

func (s *inEtcd) Version() string { return s.version }
func (s *inEtcd) Close() error    { return nil }

func (s *inEtcd) Client(ctx context.Context, id load.Client, body func(load.Save) error) error {
	c, err := clientv3.New(s.config)
	if err != nil {
		return err
	}
	defer c.Close()
	return body(func(_ int, state []byte) error {
		_, err := c.Put(ctx, "/checkpoints/"+id.Name, string(state))
		return err
	})
}
