package drivers

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/ours"
)

// open are the stores by the name of their system. The address is a socket, a
// URL or a folder, as the system has it.
var open = map[string]func(ctx context.Context, address string) (load.Store, error){
	"ours":     ours.Open,
	"redis":    openRedis,
	"postgres": openPostgres,
	"etcd":     openEtcd,
	"dbos":     openDBOS,
	"file":     openFiles,
	"append":   openLog,
}

// Run is the whole life of a driver process: NAME ADDRESS CORPUS, then orders
// on standard input until it ends.
func Run(ctx context.Context, args []string) (err error) {
	if len(args) != 3 || open[args[0]] == nil {
		return fmt.Errorf("a driver is started as NAME ADDRESS CORPUS, not %q", args)
	}
	corpus, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	store, err := connect(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	err = load.Serve(ctx, os.Stdin, os.Stdout, store, slices.Clip(corpus))
	if closed := store.Close(); err == nil {
		err = closed
	}
	return err
}

// connect tries for as long as a server may take to start.
func connect(ctx context.Context, name, address string) (load.Store, error) {
	const patience, pause = 20 * time.Second, 20 * time.Millisecond
	for began := time.Now(); ; {
		store, err := open[name](ctx, address)
		if err == nil || time.Since(began) > patience || ctx.Err() != nil {
			return store, err
		}
		time.Sleep(pause)
	}
}
