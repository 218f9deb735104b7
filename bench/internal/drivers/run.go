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

// open has the function that opens the store of each system, by the system's name. The address is a
// socket, a URL or a folder, depending on the system.
var open = map[string]func(ctx context.Context, address string) (load.Store, error){
	"ours":     ours.Open,
	"redis":    openRedis,
	"postgres": openPostgres,
	"etcd":     openEtcd,
	"dbos":     openDBOS,
	"file":     openFiles,
	"append":   openLog,
}

// Run is the whole life of a driver process. args are NAME ADDRESS CORPUS. Then it carries out
// orders from standard input until the input ends.
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

// connect retries for as long as a server can take to start.
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
