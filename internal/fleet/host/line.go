package host

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// line is a connection to the engine. It is made when it is first needed, and stays.
type line struct {
	url    func() (string, error)
	engine *pg.Engine // nil while there is no connection
}

func (l *line) connected() bool { return l.engine != nil }

// dial connects if there is no connection.
func (l *line) dial(ctx context.Context) error {
	if l.connected() {
		return nil
	}
	url, err := l.url()
	if err != nil {
		return err
	}
	l.engine, err = pg.Dial(ctx, url)
	return err
}

func (l *line) hangUp() {
	if l.connected() {
		l.engine.Close()
		l.engine = nil
	}
}
